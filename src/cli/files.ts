import { randomBytes } from 'node:crypto'
import { link, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Readable } from 'node:stream'
import { printable } from '#attestation/report/printable.ts'
import {
  callGateway,
  checkKeySafety,
  errorWordsOf,
  NoAnswer,
  systemReasonOf,
  UnsafeKey,
} from '#client/gateway.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'

/** Bytes. A page of 1,000 usual records is smaller. */
export const SOURCE_BYTES_MAX = 256 * 1024 * 1024
const FETCH_TIMEOUT_MS = 60_000

export type SourceOptions = {
  /** The bearer token for a URL. Null (the default): no token is sent. */
  readonly apiKey?: string | null
  /** Advice for a server that asks for a key (401), or refuses a call without one (403). */
  readonly keyHint?: string | null
  /** The input `-`. Default: the process's standard input. */
  readonly stdin?: Readable
  readonly bytesMax?: number
  readonly timeoutMs?: number
}

/**
 * Reads the bytes of a file, of an http(s) URL, or of standard input (`-`). Does not follow
 * redirects. Sends a key to another machine only over https. Throws CliError for missing or too
 * large input.
 */
export async function readSource(source: string, options: SourceOptions = {}): Promise<Uint8Array> {
  const { bytesMax = SOURCE_BYTES_MAX } = options
  if (source === '-') return collect(options.stdin ?? process.stdin, bytesMax)
  return isUrl(source) ? fetchSource(source, options, bytesMax) : readFile(source, bytesMax)
}

export function isUrl(source: string): boolean {
  return /^https?:\/\//i.test(source)
}

/**
 * Throws CliError for a URL, because what a gateway says about itself cannot be the user's
 * policy. `expected` names the option and what it takes.
 */
export function refuseUrl(text: string, expected: string): void {
  if (isUrl(text))
    throw new CliError(
      `${expected}, got a URL: what a gateway says about itself cannot be your policy`,
      EXIT_CODES.usage,
    )
}

/** Files that the proxy keeps beside the file of a session, while it is written. */
const BESIDE_SESSION = /\.(?:calls|part|lock)$/

/**
 * Replaces each folder among `sources` with its files, without hidden ones and those that the proxy
 * keeps beside a session's file. Throws CliError.
 */
export async function listFiles(sources: readonly string[]): Promise<readonly string[]> {
  const files: string[] = []
  for (const source of sources) {
    const isFolder = await stat(source).then(
      (found) => found.isDirectory(),
      () => false,
    )
    if (!isFolder) files.push(source)
    else files.push(...(await filesIn(source)))
  }
  return files
}

async function filesIn(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { withFileTypes: true })
  const names = entries
    .filter((entry) => entry.isFile() && !entry.name.startsWith('.'))
    .filter(({ name }) => !BESIDE_SESSION.test(name))
    .map(({ name }) => join(folder, name))
  if (names.length === 0)
    throw new CliError(`${printable(folder)} has no files`, EXIT_CODES.unavailable)
  return names.sort()
}

async function readFile(path: string, bytesMax: number): Promise<Uint8Array> {
  try {
    await using file = await open(path)
    return await collect(file.createReadStream({ autoClose: false }), bytesMax)
  } catch (fault) {
    if (fault instanceof CliError) throw fault
    throw new CliError(`cannot read ${path}: ${reasonOf(fault)}`, EXIT_CODES.unavailable)
  }
}

async function fetchSource(
  source: string,
  options: SourceOptions,
  bytesMax: number,
): Promise<Uint8Array> {
  const { apiKey = null, keyHint, timeoutMs = FETCH_TIMEOUT_MS } = options
  const url = parseUrl(source)
  const refuse = ({ message }: UnsafeKey) => new CliError(message, EXIT_CODES.usage)
  convertFault(() => checkKeySafety(url, apiKey), UnsafeKey, refuse)
  const place = { url: url.href, apiKey, fetch, timeoutMs, headers: { accept: '*/*' } }
  try {
    const { status, bytes } = await callGateway(place, '', { bytesMax })
    if (status === 200) return bytes
    const words = errorWordsOf(bytes)?.message
    const said = words === undefined ? '' : `: ${printable(words)}`
    const hint = (status === 401 || status === 403) && keyHint ? ` (${keyHint})` : ''
    throw new CliError(`${url.host} answered ${status}${said}${hint}`, EXIT_CODES.unavailable)
  } catch (fault) {
    if (fault instanceof NoAnswer) throw describeNoAnswer(fault, url.host, bytesMax)
    throw fault
  }
}

function describeNoAnswer({ code, status, cause }: NoAnswer, host: string, bytesMax: number) {
  switch (code) {
    case 'too_large':
      return tooLarge(bytesMax)
    case 'redirected':
      return new CliError(`${host} answered ${status}`, EXIT_CODES.unavailable)
    case 'too_slow':
    case 'unreachable': {
      const reason = code === 'too_slow' ? 'it took too long' : reasonOf(cause)
      return new CliError(`cannot fetch from ${host}: ${reason}`, EXIT_CODES.unavailable)
    }
  }
}

function parseUrl(source: string): URL {
  if (!URL.canParse(source))
    throw new CliError(`expected a URL, got ${printable(source)}`, EXIT_CODES.usage)
  return new URL(source)
}

async function collect(parts: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Uint8Array> {
  const kept: Uint8Array[] = []
  let size = 0
  for await (const part of parts) {
    size += part.length
    if (size > bytesMax) throw tooLarge(bytesMax)
    kept.push(part)
  }
  return Buffer.concat(kept)
}

function tooLarge(bytesMax: number): CliError {
  return new CliError(`expected at most ${bytesMax} bytes of input`, EXIT_CODES.unavailable)
}

/** Texts for system error codes. The system's own messages for these codes do not help the user. */
const SYSTEM_WORDS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file (ENOENT)',
  EISDIR: 'it is a folder (EISDIR)',
  EACCES: 'this user has no access to it (EACCES)',
  ECONNREFUSED: 'nothing answers there (ECONNREFUSED)',
  ENOTFOUND: 'there is no such host (ENOTFOUND)',
}

function reasonOf(fault: unknown): string {
  const reason = systemReasonOf(fault)
  return printable(SYSTEM_WORDS[reason] ?? reason)
}

/** Without a path, writes to standard output. Throws CliError. */
export async function writeOutput(text: string, path: string | undefined): Promise<void> {
  if (path === undefined) process.stdout.write(text)
  else await writeFileWhole(path, text)
}

/**
 * Writes a file completely or not at all, even if the machine stops. By default, only the owner can
 * read the file, because evidence contains prompts. Throws CliError.
 */
export async function writeFileWhole(path: string, text: string, mode = 0o600): Promise<void> {
  await writeWhole(path, text, mode, rename)
}

/** The same for a file that must not exist: throws CliError if it does. */
export async function createFile(path: string, text: string, mode: number): Promise<void> {
  await writeWhole(path, text, mode, (draft) =>
    link(draft, path).catch((fault: unknown) => {
      if (!WITHOUT_LINKS.has(systemReasonOf(fault))) throw fault
      return writeNewFile(path, text, mode)
    }),
  )
}

/** File systems without hard links answer so, for example FAT on a USB stick. */
const WITHOUT_LINKS: ReadonlySet<string> = new Set(['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP'])

/** `place` gives the written draft its name. */
async function writeWhole(
  path: string,
  text: string,
  mode: number,
  place: (draft: string, path: string) => Promise<void>,
): Promise<void> {
  const draft = `${path}.${randomBytes(6).toString('hex')}`
  try {
    await writeNewFile(draft, text, mode)
    await place(draft, path)
    await syncFolder(dirname(path))
  } catch (fault) {
    throw new CliError(`cannot write ${printable(path)}: ${reasonOf(fault)}`)
  } finally {
    await rm(draft, { force: true })
  }
}

async function writeNewFile(path: string, text: string, mode: number): Promise<void> {
  await using file = await open(path, 'wx', mode)
  await file.writeFile(text)
  await file.sync()
}

/** Syncs the folder, so that the rename is stored. */
async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path)
  await folder.sync()
}
