import type { RamdiskSize } from './built-image.ts'
import { encodeCpio } from './cpio.ts'
import { addParents, type FileTree } from './file-tree.ts'
import { compressGzip } from './gzip.ts'

/** A ramdisk as it stands in an image. */
export type CompressedRamdisk = { readonly bytes: Uint8Array; readonly size: RamdiskSize }

/** Packs and compresses a tree. */
export function packRamdisk(tree: FileTree): CompressedRamdisk {
  const archive = encodeCpio(tree)
  const bytes = compressGzip(archive)
  const size = { files: addParents(tree).size, bytes: archive.length, compressedBytes: bytes.length }
  return { bytes, size }
}
