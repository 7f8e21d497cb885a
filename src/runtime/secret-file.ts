import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'
import { systemCodeOf } from './starting.ts'

const SECRET_FILE_BYTES_MAX = 65_536

/** `isOpen`: every user of the machine may read the file. */
type SecretFile =
  | { readonly kind: 'secret'; readonly text: string; readonly isOpen: boolean }
  | { readonly kind: 'fault'; readonly fault: string }

/**
 * Returns the only line in a file, without its line end. A fault repeats neither the content nor
 * the path: instead of a path, an operator may have set the secret itself.
 */
export function readSecretFile(path: string): SecretFile {
  let file: number
  try {
    // Without O_NONBLOCK, a pipe without a writer would block the start forever.
    file = openSync(path, O_RDONLY | O_NONBLOCK)
  } catch (error) {
    return fault(`the file cannot be read (${systemCodeOf(error) ?? 'unknown fault'})`)
  }
  try {
    const facts = fstatSync(file)
    if (!facts.isFile()) return fault('expected a regular file')
    const bytes = new Uint8Array(SECRET_FILE_BYTES_MAX + 1)
    const length = readSync(file, bytes)
    if (length > SECRET_FILE_BYTES_MAX)
      return fault(`expected a file of at most ${SECRET_FILE_BYTES_MAX} bytes`)
    const text = decode(bytes.subarray(0, length))
    if (text === null) return fault('expected text in UTF-8')
    const line = text.replace(/\r?\n$/, '')
    if (line === '') return fault('expected a value in the file, which is empty')
    if (/[\r\n]/.test(line)) return fault('expected one line in the file')
    return { kind: 'secret', text: line, isOpen: (facts.mode & READABLE_BY_OTHERS) !== 0 }
  } catch (error) {
    return fault(`the file cannot be read (${systemCodeOf(error) ?? 'unknown fault'})`)
  } finally {
    closeSync(file)
  }
}

const { O_RDONLY, O_NONBLOCK } = constants

const READABLE_BY_OTHERS = 0o004

function fault(fault: string): SecretFile {
  return { kind: 'fault', fault }
}

function decode(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return null
  }
}
