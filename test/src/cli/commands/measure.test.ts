import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  ascii,
  buildImage,
  CMDLINE,
  KERNEL,
  RAMDISK,
  TYPE,
} from '../../../attestation/eif/image-builder.ts'
import { folderOfFile } from '../../../support/folders.ts'
import { runCommand } from '../../../support/run-command.ts'

const vectors = join(import.meta.dirname, '../../../vectors/eif')
const manifest = JSON.parse(await readFile(join(vectors, 'manifest.json'), 'utf8')) as {
  files: { file: string; pcrs: Record<string, string> }[]
}
const pcrsOf = (file: string) => manifest.files.find((entry) => entry.file === file)?.pcrs ?? {}

const folder = folderOfFile()

async function imageFile(name: string, metadata: string): Promise<string> {
  const path = join(folder, name)
  const sections = [KERNEL, CMDLINE, { type: TYPE.metadata, data: ascii(metadata) }, RAMDISK]
  await writeFile(path, buildImage({ sections }))
  return path
}

describe('affidavit measure', () => {
  it('the measure command prints measurements, sections, metadata and what is not measured, and exits 0', async () => {
    const { code, stdout: output } = await runCommand(
      'measure',
      join(vectors, 'synthetic-signed.eif'),
    )
    for (const [index, value] of Object.entries(pcrsOf('synthetic-signed.eif')))
      expect(output).toContain(`PCR${index}  ${value}\n`)
    expect(output).toMatch(/ramdisk +2486 +1100\n/)
    expect(output).toContain('"ImageName": "synthetic"')
    expect(output).toContain('Signature ES384')
    expect(output).toContain('The metadata is in no measurement')
    expect(code).toBe(0)
  })

  it('the measure command gives no measurement of an image with a wrong checksum, and exits 1', async () => {
    const { code, stdout: output } = await runCommand(
      'measure',
      join(vectors, 'synthetic-badcrc.eif'),
    )
    expect(output).toContain('NOT MEASURED\n  crc: ')
    expect(output).not.toContain('PCR0')
    expect(code).toBe(1)
  })

  it('the measure command lets no metadata move the cursor or colour the terminal', async () => {
    const hostile = '{"a":"\\u001b[2Jx\u0085\u009b31m\\u202eevil"}'
    const path = await imageFile('hostile.eif', hostile)
    const { stdout: output } = await runCommand('measure', path)
    expect(output).toContain('evil')
    expect(output.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u)
  })

  it.each([
    ['a file that is not there', () => join(folder, 'missing.eif'), 3],
    ['a folder', () => folder, 2],
  ])('the measure command refuses %s', async (_, path, exitCode) => {
    expect((await runCommand('measure', path())).code).toBe(exitCode)
  })
})
