import { isatty } from 'node:tty'
import { type LineWriterStatus, openStandardError } from '#enclave/protocol/line-writer.ts'
import type { OnStarted } from '../runtime/starting.ts'

/** From least to most severe. A logger with `silent` writes no lines. */
const LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
type LogLevel = (typeof LEVELS)[number]

type LogMethod = (members: Readonly<Record<string, unknown>>, message: string) => void

/** Each line has a constant message, and members that can be searched. */
export type Logger = Readonly<Record<Exclude<LogLevel, 'silent'>, LogMethod>>

/** Each part of the gateway is opened with these, and gives its stop function to `onStarted`. */
export type Opening = { readonly log: Logger; readonly onStarted: OnStarted }

/**
 * Writes JSON lines. The logger itself redacts, so callers cannot forget to redact. A member that
 * contains a secret or a customer's text is replaced at any depth. An error keeps only name, code,
 * message and stack. In the finished line, text that looks like a key or a bearer token is masked.
 * Does NOT recognise a prompt inside a message: messages must be constants, and values belong in
 * members.
 */
export function createLogger({
  level,
  destination,
}: {
  readonly level: LogLevel
  readonly destination: { readonly write: (line: string) => unknown }
}): Logger {
  const methodOf = (own: LogLevel): LogMethod =>
    LEVELS.indexOf(own) < LEVELS.indexOf(level)
      ? () => undefined
      : (members, message) => destination.write(lineOf(own, members, message))
  return {
    debug: methodOf('debug'),
    info: methodOf('info'),
    warn: methodOf('warn'),
    error: methodOf('error'),
  }
}

function lineOf(
  level: LogLevel,
  members: Readonly<Record<string, unknown>> | Error,
  // For an error that a package logs without a message. `error.message` is not used, because it
  // could quote input that must not be logged.
  msg = 'no message',
): string {
  const time = new Date().toISOString()
  const kept = redactObject(members instanceof Error ? { err: members } : members, 0)
  return maskSecrets(`${JSON.stringify({ level, time, ...kept, msg })}\n`)
}

export type ProcessLogger = Logger & { readonly lines: () => LineWriterStatus }

/**
 * Writes to standard error: JSON lines, or readable text if standard error is a terminal.
 * `describeLine` formats the text. The default is the optional package pino-pretty; without this
 * package, terminals also get JSON. A slow reader or a full disk does not block the process: lines
 * wait up to a limit, then they are dropped, and a later line reports how many.
 */
export async function openProcessLogger(
  level: LogLevel,
  describeLine: ((line: string) => string) | null = null,
): Promise<ProcessLogger> {
  const format = isatty(2) ? (describeLine ?? (await loadPretty())) : null
  const writer = openStandardError({
    describeDropped: (lines) => {
      const time = new Date().toISOString()
      const line = `${JSON.stringify({ level: 'warn', time, lines, msg: 'log lines dropped' })}\n`
      return format?.(line) ?? line
    },
  })
  const write = (line: string) => writer.write(format?.(line) ?? line)
  return Object.assign(createLogger({ level, destination: { write } }), { lines: writer.status })
}

/** Null when pino-pretty is not installed. */
async function loadPretty(): Promise<((line: string) => string) | null> {
  const pretty = await import('pino-pretty').catch(() => null)
  return pretty?.prettyFactory({ translateTime: 'SYS:HH:MM:ss.l' }) ?? null
}

/** Members whose values are never logged. Names are compared without case, `_` and `-`. */
const REDACTED_MEMBERS: ReadonlySet<string> = new Set([
  'authorization',
  'finetuneauthorization',
  'cookie',
  'headers',
  'xaffidavitcall',
  'credential',
  'credentials',
  'apikey',
  'secret',
  'password',
  'token',
  'privatekey',
  'relayerkey',
  'prompt',
  'messages',
  'content',
  'body',
  'request',
  'response',
  'choices',
  'tools',
  'query',
  'params',
])

/** Keeps a log line short: deeper values, longer lists and longer texts are cut. */
const LOG_DEPTH_MAX = 5
const LOG_ITEMS_MAX = 50
const LOG_TEXT_LENGTH_MAX = 2048

const MASK = '[redacted]'

function redactObject(
  object: Readonly<Record<string, unknown>>,
  depth: number,
): Record<string, unknown> {
  const result: Record<string, unknown> = {}
  for (const name of Object.keys(object).slice(0, LOG_ITEMS_MAX))
    result[name] = isRedacted(name) ? MASK : redactValue(object[name], depth + 1)
  return result
}

const knownNames = new Map<string, boolean>()
const KNOWN_NAMES_MAX = 1_000

function isRedacted(name: string): boolean {
  const known = knownNames.get(name)
  if (known !== undefined) return known
  const is = REDACTED_MEMBERS.has(name.replaceAll(/[-_]/g, '').toLowerCase())
  if (knownNames.size < KNOWN_NAMES_MAX) knownNames.set(name, is)
  return is
}

function redactValue(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return cut(value)
  if (typeof value === 'bigint') return value.toString()
  // JSON.stringify would call a function named toJSON.
  if (typeof value === 'function') return undefined
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof Uint8Array) return `${value.length} bytes`
  if (depth > LOG_DEPTH_MAX) return '[deeper]'
  if (value instanceof Error) return describeError(value, depth)
  if (Array.isArray(value))
    return value.slice(0, LOG_ITEMS_MAX).map((item) => redactValue(item, depth + 1))
  return redactObject(value as Readonly<Record<string, unknown>>, depth)
}

/**
 * Returns what is logged of an error. Leaves out members that drivers add (statements, parameters),
 * and messages of the JSON parser, which quote its input.
 */
function describeError(error: Error, depth: number): Record<string, unknown> {
  const { code, cause } = error as { readonly code?: unknown; readonly cause?: unknown }
  const frames = (error.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line))
  return {
    type: error.name,
    ...(typeof code === 'string' || typeof code === 'number' ? { code } : {}),
    message: error instanceof SyntaxError ? '[text withheld]' : cut(error.message),
    stack: cut(frames.map((line) => line.trim()).join('\n')),
    ...(cause instanceof Error ? { cause: redactValue(cause, depth + 1) } : {}),
  }
}

function cut(text: string): string {
  return text.length > LOG_TEXT_LENGTH_MAX ? `${text.slice(0, LOG_TEXT_LENGTH_MAX)}…` : text
}

/** Gateway keys (afd_…), provider keys (sk-… and similar) and bearer tokens. */
const SECRET_PATTERN =
  /\bafd_[a-z2-7]{16}_[\w-]{20,}|\b(?:sk|gsk|xai)-[\w-]{16,}|\bBearer\s+[\w.~+/=-]{8,}/gi

function maskSecrets(line: string): string {
  return line.replaceAll(SECRET_PATTERN, MASK)
}
