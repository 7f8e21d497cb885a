import { execFile } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { constants, open } from 'node:fs/promises'
import { StartFailure, systemCodeOf } from '../runtime/starting.ts'
import { type ContentCipher, type ContentKey, createContentCipher } from './content-cipher.ts'

export type ContentKeySource =
  | { readonly file: string }
  /** The path of a program that is run without a shell, then its arguments. */
  | { readonly command: readonly [string, ...string[]] }

/** Enough for about 1,000 keys. */
const KEY_TEXT_BYTES_MAX = 64 * 1024

/** A key service usually answers within one second. */
const COMMAND_TIMEOUT_MS = 10_000

/** Permission bits for users who are neither the file's owner nor in its group. */
const OTHERS = 0o007

const KEY_BYTES = 32
const HEX_FORM = /^[0-9a-fA-F]{64}$/
const BASE64_FORM = /^[A-Za-z0-9+/]{43}=$/

/**
 * If `source` is null, returns null, and content is stored unencrypted. Throws StartFailure, whose
 * message never contains a key or the program's output.
 */
export async function openContentCipher(
  source: ContentKeySource | null,
  timeoutMs = COMMAND_TIMEOUT_MS,
): Promise<ContentCipher | null> {
  if (source === null) return null
  const [name, text] =
    'file' in source
      ? ['CONTENT_KEY_FILE', await readKeyFile(source.file)]
      : ['CONTENT_KEY_COMMAND', await runKeyCommand(source.command, timeoutMs)]
  const keys = parseContentKeys(text)
  if (typeof keys === 'string') throw new StartFailure(`content: ${name}: ${keys}`)
  return createContentCipher(keys)
}

/**
 * Reads a key per line: 32 bytes in hex or standard base64. Skips blank lines and lines that begin
 * with `#`. The last key is the newest. Returns an error text, without a key, for invalid text.
 */
export function parseContentKeys(text: string): readonly [ContentKey, ...ContentKey[]] | string {
  const lines = text.split('\n').map((line) => line.trim())
  const keys: ContentKey[] = []
  for (const [at, line] of lines.entries()) {
    if (line === '' || line.startsWith('#')) continue
    const key = decodeKey(line)
    if (key === null)
      return `expected ${KEY_BYTES} bytes in hex or base64 in line ${at + 1}, and nothing else`
    const id = idOf(key)
    if (keys.some((known) => known.id === id))
      return `expected each key once, got the key of line ${at + 1} again`
    keys.push({ id, key })
  }
  const [first, ...others] = keys
  return first === undefined ? 'expected a key, got none' : [first, ...others]
}

function decodeKey(line: string): Uint8Array | null {
  if (HEX_FORM.test(line)) return Buffer.from(line, 'hex')
  if (!BASE64_FORM.test(line)) return null
  const key = Buffer.from(line, 'base64')
  // Two bits of the last base64 character are unused, so four texts mean the same key. Only one of
  // these texts is accepted.
  return key.toString('base64') === line ? key : null
}

/** Different keys have different ids. The id does not reveal the key. */
function idOf(key: Uint8Array): string {
  return createHmac('sha256', key).update('affidavit content key id').digest('hex').slice(0, 16)
}

async function readKeyFile(path: string): Promise<string> {
  try {
    // Without O_NONBLOCK, a pipe without a writer would block the start forever.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const facts = await file.stat()
    if (!facts.isFile())
      throw new StartFailure(`content: CONTENT_KEY_FILE ${path}: expected a regular file`)
    const { mode, size } = facts
    if ((mode & OTHERS) !== 0)
      throw new StartFailure(
        `content: CONTENT_KEY_FILE ${path} can be used by all users: remove the rights of others (chmod o=)`,
      )
    if (size > KEY_TEXT_BYTES_MAX)
      throw new StartFailure(
        `content: CONTENT_KEY_FILE ${path}: expected at most ${KEY_TEXT_BYTES_MAX} bytes`,
      )
    return await file.readFile('utf8')
  } catch (error) {
    if (error instanceof StartFailure) throw error
    throw new StartFailure(
      `content: CONTENT_KEY_FILE ${path} cannot be read (${systemCodeOf(error) ?? 'unknown fault'})`,
    )
  }
}

function runKeyCommand(
  [program, ...args]: readonly [string, ...string[]],
  timeoutMs: number,
): Promise<string> {
  const options = {
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    maxBuffer: KEY_TEXT_BYTES_MAX,
    encoding: 'utf8',
  } as const
  return new Promise((resolve, reject) => {
    execFile(program, args, options, (error, stdout) => {
      if (error === null) return resolve(stdout)
      reject(new StartFailure(`content: CONTENT_KEY_COMMAND ${program} ${describeEnd(error)}`))
    }).stdin?.end()
  })
}

/** The command's output may contain a part of a key, so it is not shown. */
function describeEnd(error: Error & { code?: unknown; killed?: boolean }): string {
  if (error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') return 'printed too much'
  if (error.killed === true) return 'took too long'
  if (typeof error.code === 'number') return `ended with exit code ${error.code}`
  return `cannot be run (${systemCodeOf(error) ?? 'it was killed'})`
}
