import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { type FileHandle, open, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import type { Digests } from '../../../attestation/eif/digests.ts'
import { EIF_SECTION_HEADER_BYTES } from '../../../attestation/eif/header.ts'
import { measureEif } from '../../../attestation/eif/measure-eif.ts'
import type { EifMeasurements } from '../../../attestation/eif/registers.ts'
import type { Section } from '../../../attestation/eif/section.ts'

/** What a machine boots: the sections of one image file, and what that file measures. */
export type BootFiles = {
  readonly kernelPath: string
  /** All ramdisks of the image, one after the other: the kernel unpacks them in this order into one tree. */
  readonly ramdiskPath: string
  readonly cmdline: string
  readonly measurements: EifMeasurements
}

/** A ramdisk begins at a multiple of four bytes (Linux, driver-api/early-userspace/buffer-format.rst). */
export const RAMDISK_ALIGNMENT_BYTES = 4

/**
 * Takes an image file apart into `folder`, as the hypervisor does, and measures it: what is booted is what is measured.
 * Throws EifError for a file that is no image.
 */
export async function openBootFiles(eifPath: string, folder: string): Promise<BootFiles> {
  const { size } = await stat(eifPath)
  const { sections, measurements } = await measureEif(
    { sizeBytes: size, chunks: createReadStream(eifPath) },
    NODE_DIGESTS,
  )
  const kernelPath = join(folder, 'kernel')
  const ramdiskPath = join(folder, 'ramdisk')
  await using image = await open(eifPath)
  const readAll = async (kind: Section['kind']) => {
    const found = sections.filter((section) => section.kind === kind)
    return await Promise.all(found.map((section) => readSection(image, section)))
  }
  await writeFile(kernelPath, await readAll('kernel'))
  await writeFile(ramdiskPath, (await readAll('ramdisk')).map(padRamdisk))
  const cmdline = Buffer.concat(await readAll('cmdline')).toString('latin1')
  return { kernelPath, ramdiskPath, cmdline, measurements }
}

/** Gives the bytes with the zeros that let another ramdisk follow. */
export function padRamdisk(ramdisk: Uint8Array): Uint8Array {
  const padding = -ramdisk.length & (RAMDISK_ALIGNMENT_BYTES - 1)
  return Buffer.concat([ramdisk, new Uint8Array(padding)])
}

const NODE_DIGESTS: Digests = { sha384: () => createHash('sha384'), crc32 }

async function readSection(image: FileHandle, { offset, dataBytes }: Section): Promise<Uint8Array> {
  const data = new Uint8Array(dataBytes)
  let filled = 0
  while (filled < dataBytes) {
    const at = offset + EIF_SECTION_HEADER_BYTES + filled
    const { bytesRead } = await image.read(data, filled, dataBytes - filled, at)
    if (bytesRead === 0) throw new Error('the image file became shorter while it was read')
    filled += bytesRead
  }
  return data
}
