import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { EifError } from '#attestation/eif/eif-error.ts'
import { openBootFiles } from '#enclave/image/boot/boot-enclave.ts'
import { sealImage } from '#enclave/image/eif.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-boot-files-'))
})
afterAll(() => rm(folder, { recursive: true }))

const { eif, measurements } = sealImage({
  kernel: Buffer.from('kernel'),
  cmdline: 'console=ttyS0',
  kernelVersion: '6',
  bootRamdisk: Buffer.from('boot!'),
  applicationRamdisk: Buffer.from('application'),
  version: '1.0.0',
  commit: 'c0'.repeat(20),
  signer: null,
})

describe('openBootFiles', () => {
  it('openBootFiles gives what a hypervisor boots of an image, and what it measures', async () => {
    const path = join(folder, 'a.eif')
    await writeFile(path, eif)
    const files = await openBootFiles(path, folder)
    expect(await readFile(files.kernelPath, 'utf8')).toBe('kernel')
    expect(files.cmdline).toBe('console=ttyS0')
    expect(encodeHex(files.measurements.pcr0)).toBe(measurements.PCR0)
    expect(encodeHex(files.measurements.pcr2)).toBe(measurements.PCR2)
  })

  it('openBootFiles begins each ramdisk at a multiple of four bytes', async () => {
    const path = join(folder, 'a.eif')
    await writeFile(path, eif)
    const { ramdiskPath } = await openBootFiles(path, folder)
    expect(await readFile(ramdiskPath, 'latin1')).toBe('boot!\0\0\0application\0')
  })

  it('openBootFiles refuses an image with a byte that was changed', async () => {
    const path = join(folder, 'b.eif')
    const changed = Buffer.from(eif)
    const at = changed.indexOf('application')
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at)
    await writeFile(path, changed)
    await expect(openBootFiles(path, folder)).rejects.toThrow(EifError)
  })
})
