import { randomBytes } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Readable } from 'node:stream'
import { printable } from '../../attestation/report/printable.ts'
import { CliError, EXIT_CODES } from './faults.ts'

/**
 * Largest input that is read, bytes: a page of 1,000 records of usual size; a single one may be
 * larger than all those.
 */
const SOURCE_BYTES_MAX = 256 * 1024 * 1024
/** Longest that a URL may take, milliseconds. */
const FETCH_TIMEOUT_MS = 60_000

export type SourceOptions = {
  /** Sent as a bearer token to a URL; null, the default, sends none. */
  readonly apiKey?: string | null
  /** Told beside a refusal for want of a key (401): how to give one. */
  readonly keyHint?: string | null
  /** What `-` reads; the default is the process's own. */
  readonly stdin?: Readable
  readonly bytesMax?: number
  readonly timeoutMs?: number
}

/**
 * Gives the bytes of a file, of an http(s) URL, or of standard input (`-`). Redirects are not
 * followed, and a key leaves this machine over https alone. Throws CliError when there is nothing
 * to read or too much of it.
 */
export async function readSource(source: string, options: SourceOptions = {}): Promise<Uint8Array> {
  const { bytesMax = SOURCE_BYTES_MAX } = options
  if (source === '-') return collect(options.stdin ?? process.stdin, bytesMax)
  return isUrl(source) ? fetchSource(source, options, bytesMax) : readFile(source, bytesMax)
}

/** Whether a source is fetched from the network. */
export function isUrl(source: string): boolean {
  return /^https?:\/\//i.test(source)
}

/** Throws CliError when the key would leave this machine unencrypted. */
export function checkKeySafety(url: URL, apiKey: string | null): void {
  if (apiKey !== null && url.protocol !== 'https:' && !isLoopback(url.hostname))
    throw new CliError(
      'expected https for a URL on another machine: others could read the API key',
      EXIT_CODES.usage,
    )
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
  { apiKey = null, keyHint, timeoutMs = FETCH_TIMEOUT_MS }: SourceOptions,
  bytesMax: number,
): Promise<Uint8Array> {
  const url = parseUrl(source)
  checkKeySafety(url, apiKey)
  const headers = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }
  const signal = AbortSignal.timeout(timeoutMs)
  try {
    const response = await fetch(url, { headers, signal, redirect: 'manual' })
    const bytes = response.body === null ? new Uint8Array() : await collect(response.body, bytesMax)
    if (response.status === 200) return bytes
    const hint = response.status === 401 && keyHint ? ` (${keyHint})` : ''
    throw new CliError(
      `${url.host} answered ${response.status}${describeAnswer(bytes)}${hint}`,
      EXIT_CODES.unavailable,
    )
  } catch (fault) {
    if (fault instanceof CliError) throw fault
    throw new CliError(`cannot fetch from ${url.host}: ${reasonOf(fault)}`, EXIT_CODES.unavailable)
  }
}

function parseUrl(source: string): URL {
  if (!URL.canParse(source))
    throw new CliError(`expected a URL, got ${printable(source)}`, EXIT_CODES.usage)
  return new URL(source)
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(hostname)
}

/** The message of our own error envelope, when the answer is one. */
function describeAnswer(bytes: Uint8Array): string {
  try {
    const { error } = JSON.parse(new TextDecoder().decode(bytes))
    return typeof error?.message === 'string' ? `: ${printable(error.message)}` : ''
  } catch {
    return ''
  }
}

function collect(parts: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Uint8Array> {
  const tooLarge = () => new CliError(`expected at most ${bytesMax} bytes of input`)
  return collectBytes(parts, bytesMax, tooLarge)
}

/** All bytes of the parts, in order. Throws `tooLarge` when they are over `bytesMax`. */
export async function collectBytes(
  parts: AsyncIterable<Uint8Array>,
  bytesMax: number,
  tooLarge: () => Error,
): Promise<Uint8Array> {
  const kept: Uint8Array[] = []
  let size = 0
  for await (const part of parts) {
    size += part.length
    if (size > bytesMax) throw tooLarge()
    kept.push(part)
  }
  return Buffer.concat(kept)
}

/** What the system's codes mean, where its own words would not help. */
const SYSTEM_WORDS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file (ENOENT)',
  EISDIR: 'it is a folder (EISDIR)',
  EACCES: 'this user has no access to it (EACCES)',
  ECONNREFUSED: 'nothing answers there (ECONNREFUSED)',
  ENOTFOUND: 'there is no such host (ENOTFOUND)',
}

function reasonOf(fault: unknown): string {
  if (!(fault instanceof Error)) return 'unknown fault'
  if (fault.name === 'TimeoutError') return 'it took too long'
  const cause = fault.cause instanceof Error ? fault.cause : fault
  const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : null
  return printable(code === null ? cause.message : (SYSTEM_WORDS[code] ?? code))
}

/** Writes text to a file, or to standard output when there is none. Throws CliError. */
export async function writeOutput(text: string, path: string | undefined): Promise<void> {
  if (path === undefined) process.stdout.write(text)
  else await writeFileWhole(path, text)
}

/**
 * Writes a file whole or not at all, also when the machine stops in between: written beside it,
 * synced, and renamed. Only the owner can read it unless `mode` says otherwise, for evidence holds
 * prompts. Throws CliError.
 */
export async function writeFileWhole(path: string, text: string, mode = 0o600): Promise<void> {
  const draft = `${path}.${randomBytes(6).toString('hex')}`
  try {
    await writeNewFile(draft, text, mode)
    await rename(draft, path)
    await syncFolder(dirname(path))
  } catch (fault) {
    await rm(draft, { force: true })
    throw new CliError(
      `cannot write ${printable(path)}: ${fault instanceof Error ? fault.message : 'unknown fault'}`,
    )
  }
}

/** Writes a file that is not there yet, such as a key, and waits for the disk. Throws CliError. */
export async function createFile(path: string, text: string, mode: number): Promise<void> {
  await writeNewFile(path, text, mode).catch((fault: unknown) => {
    throw new CliError(`cannot write ${printable(path)}: ${reasonOf(fault)}`)
  })
}

async function writeNewFile(path: string, text: string, mode: number): Promise<void> {
  await using file = await open(path, 'wx', mode)
  await file.writeFile(text)
  await file.sync()
}

/** The rename itself is in the folder. */
async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path)
  await folder.sync()
}
