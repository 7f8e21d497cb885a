import { BuildError } from '#enclave/image/build-error.ts'
import { compressGzip } from '#enclave/image/cpio.ts'
import type { FileTree } from '#enclave/image/file-tree.ts'

/** The folder in which npm expects all files. */
const FOLDER = 'package'

/** 1985-10-26T08:15:00Z, npm's time for all files. Some tools do not accept 1970. */
const MODIFIED_SECONDS = 499_162_500

const BLOCK_BYTES = 512

/**
 * Packs files in npm's form: a tar archive (POSIX ustar) in gzip. The same files produce the same
 * bytes on every machine: entries are sorted by path, without owner and with one fixed time, and
 * the compression is plain JavaScript. Throws BuildError `archive_malformed` for an entry that is
 * not a file, and for a path that is too long.
 */
export function packTarball(files: FileTree): Uint8Array {
  const entries = [...files].toSorted(([one], [other]) => (one < other ? -1 : 1))
  const blocks = entries.flatMap(([path, entry]) => {
    if (entry.kind !== 'file')
      throw new BuildError('archive_malformed', `${path}: expected a file, got a ${entry.kind}`)
    const { mode, data } = entry
    const name = `${FOLDER}/${path}`
    return [
      writeHeader({ name, mode, size: data.length }),
      data,
      new Uint8Array(-data.length & (BLOCK_BYTES - 1)),
    ]
  })
  return compressGzip(Buffer.concat([...blocks, new Uint8Array(2 * BLOCK_BYTES)]))
}

/** The fields in the order of POSIX.1-1988 ustar. */
function writeHeader(file: {
  readonly name: string
  readonly mode: number
  readonly size: number
}): Uint8Array {
  if (Buffer.byteLength(file.name) > 100)
    throw new BuildError('archive_malformed', `${file.name}: expected a path of at most 100 bytes`)
  const header = Buffer.alloc(BLOCK_BYTES)
  header.write(file.name, 0)
  writeOctal(header, file.mode, { at: 100, digits: 7 })
  writeOctal(header, 0, { at: 108, digits: 7 })
  writeOctal(header, 0, { at: 116, digits: 7 })
  writeOctal(header, file.size, { at: 124, digits: 11 })
  writeOctal(header, MODIFIED_SECONDS, { at: 136, digits: 11 })
  header.write('0', 156)
  header.write('ustar\x0000', 257, 'latin1')
  header.fill(' ', 148, 156)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return header
}

function writeOctal(
  header: Buffer,
  value: number,
  { at, digits }: { readonly at: number; readonly digits: number },
): void {
  header.write(value.toString(8).padStart(digits, '0'), at, 'latin1')
}
