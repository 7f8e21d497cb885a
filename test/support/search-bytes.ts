import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs'
import { join } from 'node:path'

/** A text in the encodings that programs use for it, by their names. */
export function formsOf(text: string): ReadonlyMap<string, Buffer> {
  const bytes = Buffer.from(text)
  const hex = bytes.toString('hex')
  const utf16 = Buffer.from(text, 'utf16le')
  const forms: [string, Buffer][] = [
    ['bytes', bytes],
    ['reversed', Buffer.from(bytes).reverse()],
    ['hex', Buffer.from(hex)],
    ['HEX', Buffer.from(hex.toUpperCase())],
    ['UTF-16LE', utf16],
    ['UTF-16BE', Buffer.from(utf16).swap16()],
    ['JSON escapes', Buffer.from([...bytes].map((byte) => `\\u00${hexOf(byte)}`).join(''))],
    ['percent escapes', Buffer.from([...bytes].map((byte) => `%${hexOf(byte)}`).join(''))],
  ]
  for (const offset of [0, 1, 2]) {
    const base64 = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64')
    // The part that does not depend on the bytes before and after it.
    const middle = base64.slice(4, -4)
    forms.push([`base64 + ${offset}`, Buffer.from(middle)])
    const forUrls = middle.replaceAll('+', '-').replaceAll('/', '_')
    if (forUrls !== middle) forms.push([`base64url + ${offset}`, Buffer.from(forUrls)])
  }
  return new Map(forms)
}

const hexOf = (byte: number) => byte.toString(16).padStart(2, '0')

/** Names of the forms of `text` that are in `bytes`. */
export function findForms(bytes: Uint8Array, text: string): readonly string[] {
  const searched = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return [...formsOf(text)].filter(([, form]) => searched.includes(form)).map(([name]) => name)
}

/**
 * The files of a folder and its subfolders, by their paths. Files that disappear meanwhile are left
 * out.
 */
export function readFolder(folder: string): ReadonlyMap<string, Buffer> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
  return new Map(
    files
      .filter((entry) => entry.isFile())
      .flatMap((entry): [string, Buffer][] => {
        const path = join(entry.parentPath, entry.name)
        try {
          return [[path.slice(folder.length + 1), readFileSync(path)]]
        } catch (fault) {
          if ((fault as NodeJS.ErrnoException).code === 'ENOENT') return []
          throw fault
        }
      }),
  )
}

const PIECE_BYTES = 64 * 1024 * 1024
/** Pieces overlap by this: no searched form of a text is longer. */
const OVERLAP_BYTES = 4_096

/** Memory that a process of Linux can write: heap, stacks, buffers. In pieces that overlap. */
export function* readMemory(pid: number): Generator<Buffer> {
  const memory = openSync(`/proc/${pid}/mem`, 'r')
  try {
    for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
      const [, start, end] = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(line) ?? []
      if (start === undefined || end === undefined) continue
      for (let at = BigInt(`0x${start}`); at < BigInt(`0x${end}`); at += BigInt(PIECE_BYTES)) {
        const left = Number(BigInt(`0x${end}`) - at)
        const piece = Buffer.alloc(Math.min(left, PIECE_BYTES + OVERLAP_BYTES))
        const length = readPiece(memory, piece, at)
        if (length > 0) yield piece.subarray(0, length)
      }
    }
  } finally {
    closeSync(memory)
  }
}

/** If a piece cannot be read, the process no longer has that memory, or it belongs to a device. */
function readPiece(memory: number, piece: Buffer, position: bigint): number {
  try {
    return readSync(memory, piece, 0, piece.length, position)
  } catch (fault) {
    if (['EIO', 'EFAULT', 'ENOMEM'].includes((fault as NodeJS.ErrnoException).code ?? '')) return 0
    throw fault
  }
}
