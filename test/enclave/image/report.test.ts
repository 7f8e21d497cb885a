import { describe, expect, it } from 'vitest'
import {
  type BuiltImage,
  formatReport,
  IMAGE_BYTES_AIM,
  listImageWarnings,
} from '#enclave/image/report.ts'

const OPTIONS = { isDevelopment: false, kernel: null, nsmModuleFile: 'nsm.ko' }
const image = (eifBytes: number): BuiltImage => ({
  folder: '/out',
  eifPath: '/out/affidavit.eif',
  kernelPath: '/out/kernel',
  cmdline: 'console',
  bootRamdiskPath: '/out/boot.cpio.gz',
  applicationRamdiskPath: '/out/application.cpio.gz',
  measurements: { 0: 'aa', 1: 'bb', 2: 'cc' },
  release: {
    version: '1',
    git_commit: 'ab',
    created_at: '',
    architecture: 'x86_64',
    measurements: { PCR0: 'aa', PCR1: 'bb', PCR2: 'cc', PCR8: 'dd' },
    inputs: {},
  },
  report: {
    eifBytes,
    kernelBytes: 9_000_000,
    boot: { files: 5, bytes: 2_000_000, compressedBytes: 1_000_000 },
    application: { files: 300, bytes: 140_000_000, compressedBytes: 50_000_000 },
    dependencies: [
      { kind: 'npm', name: 'koffi', version: '3', why: 'the ioctl', bytes: 1_100_000 },
    ],
    sources: { files: 150, bytes: 600_000, commit: 'ab' },
    warnings: ['beware'],
  },
})

describe('formatReport', () => {
  it('formatReport tells sizes, every dependency and its reason, measurements and warnings', () => {
    const text = formatReport(image(60_000_000))
    for (const part of [
      '60.0 MB, within',
      '50.0 MB compressed, 140.0 MB unpacked',
      '1 dependencies',
      'beware',
    ])
      expect(text).toContain(part)
    expect(text).toMatch(/koffi 3 \(npm\) +1\.1 MB {2}the ioctl/)
    expect(text).toMatch(/PCR0 {2}aa\n {2}PCR1 {2}bb\n {2}PCR2 {2}cc\n {2}PCR8 {2}dd/)
  })

  it('formatReport says when an image is larger than it should be', () => {
    expect(formatReport(image(IMAGE_BYTES_AIM + 1))).toContain('OVER')
  })
})

describe('listWarnings', () => {
  it('listWarnings gives no warning for a committed production image with a driver', () => {
    expect(listImageWarnings(OPTIONS, [])).toEqual([])
  })

  it('listWarnings warns of a development image, of a missing driver and of uncommitted files', () => {
    expect(listImageWarnings({ ...OPTIONS, isDevelopment: true }, [])).toEqual([
      expect.stringContaining('simulated'),
    ])
    expect(listImageWarnings({ ...OPTIONS, nsmModuleFile: null }, [])).toEqual([
      expect.stringContaining('/dev/nsm'),
    ])
    expect(listImageWarnings(OPTIONS, ['a'])).toEqual([expect.stringContaining('1 uncommitted')])
  })
})
