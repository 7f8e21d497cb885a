import { BuildError } from './build-error.ts'
import type { FileTree, TreeEntry } from './file-tree.ts'

/**
 * Returns the files and links in a tar archive (POSIX ustar and pax, GNU long names), by path
 * without a leading `./`. Only the executable bit of a mode is kept: 0755 or 0644. A hard link
 * becomes a copy of its file. The caller must have checked the archive's digest. Throws BuildError
 * `archive_malformed`.
 */
export function decodeTar(bytes: Uint8Array): FileTree {
  const tree = new Map<string, TreeEntry>()
  let said: ExtendedFields = {}
  for (let at = 0; at + BLOCK_BYTES <= bytes.length; ) {
    const header = Buffer.from(bytes.buffer, bytes.byteOffset + at, BLOCK_BYTES)
    if (header.every((byte) => byte === 0)) break
    checkHeader(header)
    const size = readOctal(header, 124, 12)
    if (at + BLOCK_BYTES + size > bytes.length)
      throw malformed('an entry ends after the archive does')
    const data = new Uint8Array(bytes.buffer, bytes.byteOffset + at + BLOCK_BYTES, size)
    at += BLOCK_BYTES + Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES
    const type = String.fromCharCode(header.readUInt8(156))
    const extended = readExtended(type, data)
    if (extended === null) {
      addEntry(tree, { header, type, data, said })
      said = {}
    } else said = { ...said, ...extended }
  }
  return tree
}

const BLOCK_BYTES = 512

/** Fields that are too large for a header. An extra entry before the described entry has them. */
type ExtendedFields = { readonly path?: string; readonly linkpath?: string }

type RawEntry = {
  readonly header: Buffer
  readonly type: string
  readonly data: Uint8Array
  readonly said: ExtendedFields
}

function addEntry(tree: Map<string, TreeEntry>, { header, type, data, said }: RawEntry): void {
  const prefix = readText(header, 345, 155)
  const short = prefix === '' ? readText(header, 0, 100) : `${prefix}/${readText(header, 0, 100)}`
  const path = cleanPath(said.path ?? short)
  const target = said.linkpath ?? readText(header, 157, 100)
  switch (type) {
    case '0':
    case '\0':
      tree.set(path, { kind: 'file', mode: modeOf(header), data })
      return
    case '1': {
      const linked = tree.get(cleanPath(target))
      if (linked === undefined) throw malformed(`${path} is a link to nothing before it`)
      tree.set(path, linked)
      return
    }
    case '2':
      tree.set(path, { kind: 'link', target })
      return
    case '5':
      return
    default:
      throw malformed(`${path} is of the unknown type ${JSON.stringify(type)}`)
  }
}

/** Returns the fields if this entry only describes the next entry, otherwise null. */
function readExtended(type: string, data: Uint8Array): ExtendedFields | null {
  const text = Buffer.from(data)
  if (type === 'L') return { path: readText(text, 0, text.length) }
  if (type === 'K') return { linkpath: readText(text, 0, text.length) }
  if (type === 'g') return {}
  return type === 'x' ? readPax(text) : null
}

/** Reads records of the form `length key=value\n`, where length counts the bytes of the record. */
function readPax(bytes: Buffer): ExtendedFields {
  const fields = new Map<string, string>()
  for (let at = 0; at < bytes.length; ) {
    const length = Number.parseInt(bytes.toString('latin1', at, at + 10), 10)
    if (!(length > 0) || at + length > bytes.length)
      throw malformed('a pax record ends after its entry')
    const record = bytes.toString('utf8', at, at + length - 1)
    const [key = '', ...value] = record.slice(record.indexOf(' ') + 1).split('=')
    fields.set(key, value.join('='))
    at += length
  }
  const [path, linkpath] = [fields.get('path'), fields.get('linkpath')]
  return {
    ...(path === undefined ? {} : { path }),
    ...(linkpath === undefined ? {} : { linkpath }),
  }
}

/** Checks the header's checksum: the sum of its bytes, with spaces in place of the checksum. */
function checkHeader(header: Buffer): void {
  const sum = header.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0)
  if (readOctal(header, 148, 8) !== sum) throw malformed('the checksum of a header is wrong')
}

function modeOf(header: Buffer): number {
  return (readOctal(header, 100, 8) & 0o100) === 0 ? 0o644 : 0o755
}

function readOctal(header: Buffer, start: number, length: number): number {
  const text = readText(header, start, length).trim()
  if (!/^[0-7]+$/.test(text)) throw malformed('expected an octal number in a header')
  return Number.parseInt(text, 8)
}

function readText(header: Buffer, start: number, length: number): string {
  const text = header.toString('utf8', start, start + length)
  const end = text.indexOf('\0')
  return end < 0 ? text : text.slice(0, end)
}

function cleanPath(path: string): string {
  return path.replace(/^(\.\/)+/, '')
}

function malformed(message: string): BuildError {
  return new BuildError('archive_malformed', message)
}
