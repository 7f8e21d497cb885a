import { crc32 } from 'node:zlib'
import { deflateSync } from 'fflate'
import { addParents, type FileTree, type TreeEntry, TreeError } from './file-tree.ts'

/** Largest size that fits into the header's 32 bits. */
const CPIO_FILE_BYTES_MAX = 0xffff_ffff

/** Longest path that Linux reads from a ramdisk, bytes (PATH_MAX, with the final zero). */
const CPIO_PATH_BYTES_MAX = 4096

/**
 * Encodes `tree` as an archive that Linux unpacks as a ramdisk: cpio "newc"
 * (Documentation/driver-api/early-userspace/buffer-format.rst). The order in `tree` does not change
 * the bytes: entries are sorted by the bytes of their paths, and numbered in this order (inode).
 * Owner, group and time are 0. Missing directories are added. Throws TreeError for entries that the
 * format cannot express.
 */
export function encodeCpio(tree: FileTree): Uint8Array<ArrayBuffer> {
  const entries = [...addParents(tree)]
    .map(([path, entry]) => ({ name: new TextEncoder().encode(path), entry }))
    .sort((left, right) => Buffer.compare(left.name, right.name))
  const pieces = entries.flatMap(({ name, entry }, index) =>
    encodeEntry({ name, entry, inode: index + 1 }),
  )
  pieces.push(...encodeRecord({ ...TRAILER, name: new TextEncoder().encode('TRAILER!!!') }))
  return new Uint8Array(Buffer.concat(pieces))
}

/** File types of `st_mode`. */
const TYPE = { file: 0o100000, directory: 0o040000, link: 0o120000, device: 0o020000 } as const

const NOTHING = new Uint8Array()
const TRAILER = { inode: 0, mode: 0, links: 1, major: 0, minor: 0, data: NOTHING } as const

type CpioRecord = {
  readonly name: Uint8Array
  readonly inode: number
  readonly mode: number
  readonly links: number
  readonly major: number
  readonly minor: number
  readonly data: Uint8Array
}

type NumberedEntry = {
  readonly name: Uint8Array
  readonly entry: TreeEntry
  readonly inode: number
}

function encodeEntry({ name, entry, inode }: NumberedEntry): readonly Uint8Array[] {
  if (name.length >= CPIO_PATH_BYTES_MAX)
    throw new TreeError(`a path of ${name.length} bytes is too long`)
  const permissions = entry.kind === 'link' ? 0o777 : entry.mode
  if ((permissions & ~0o7777) !== 0)
    throw new TreeError(`expected permission bits, got ${permissions}`)
  return encodeRecord({
    name,
    inode,
    mode: TYPE[entry.kind] | permissions,
    links: entry.kind === 'directory' ? 2 : 1,
    major: entry.kind === 'device' ? entry.major : 0,
    minor: entry.kind === 'device' ? entry.minor : 0,
    data: dataOf(entry),
  })
}

function dataOf(entry: TreeEntry): Uint8Array {
  if (entry.kind === 'link') return new TextEncoder().encode(entry.target)
  return entry.kind === 'file' ? entry.data : NOTHING
}

function encodeRecord(record: CpioRecord): readonly Uint8Array[] {
  const { name, inode, mode, links, major, minor, data } = record
  if (data.length > CPIO_FILE_BYTES_MAX)
    throw new TreeError(`a file of ${data.length} bytes is too large`)
  const owner = [0, 0]
  const device = [0, 0]
  const fields = [
    inode,
    mode,
    ...owner,
    links,
    0,
    data.length,
    ...device,
    major,
    minor,
    name.length + 1,
    0,
  ]
  const header = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}`
  const head = Buffer.concat([Buffer.from(header, 'latin1'), name, Uint8Array.of(0)])
  return [head, padding(head.length), data, padding(data.length)]
}

/** Returns the zeros that extend `length` to a multiple of four. */
function padding(length: number): Uint8Array {
  return new Uint8Array(-length & 3)
}

/**
 * Compresses `bytes` as a gzip file (RFC 1952) without name and time. The measured bytes must
 * always be the same, but zlib's output depends on its version and on the processor. So the
 * compression is plain JavaScript.
 */
export function compressGzip(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  // Without `mem`, fflate uses a logarithm, whose last bit can differ between JavaScript engines.
  const deflated = deflateSync(bytes, { level: 6, mem: 12 })
  const trailer = Buffer.alloc(8)
  trailer.writeUInt32LE(crc32(bytes), 0)
  trailer.writeUInt32LE(bytes.length % 2 ** 32, 4)
  return new Uint8Array(Buffer.concat([HEADER, deflated, trailer]))
}

/** Magic, deflate, no flags, no time, no extra flags, unknown system. */
const HEADER = Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255)

export type RamdiskSize = {
  readonly files: number
  readonly bytes: number
  readonly compressedBytes: number
}

export type CompressedRamdisk = { readonly bytes: Uint8Array; readonly size: RamdiskSize }

export function packRamdisk(tree: FileTree): CompressedRamdisk {
  const archive = encodeCpio(tree)
  const bytes = compressGzip(archive)
  const size = {
    files: addParents(tree).size,
    bytes: archive.length,
    compressedBytes: bytes.length,
  }
  return { bytes, size }
}
