import { randomBytes } from 'node:crypto'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { FormatError } from '../../../attestation/errors.ts'
import { formsOf } from '../../../attestation/json/forms.ts'
import { JsonError } from '../../../attestation/json/json-error.ts'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberOf } from '../../../attestation/json/value.ts'
import { orNull } from '../../../attestation/or-null.ts'
import { CliError } from '../faults.ts'

const { membersOf, textOf } = formsOf('invalid_session_file')

/** Value of `format` in the first line of every session file. */
const SESSION_FORMAT = 'affidavit-session'

/** Longest model name that is stored, characters. */
const MODEL_LENGTH_MAX = 200

/** One call of a session. `HASH.json` beside the session file has the proof of a checked call. */
export type SessionCall = {
  /** When the call ended, RFC 3339, by the clock of the machine that wrote the file. */
  readonly at: string
  readonly verdict: 'checked' | 'refused' | 'error' | 'left'
  /** The model in the request. Null if the request names no model. */
  readonly model: string | null
  /** Hash of a checked call, 64 hex digits. Null for other calls. */
  readonly hash: string | null
  /** Code of the refusal or of the error. Null for other calls. */
  readonly detail: string | null
}

/** A session file that is open for writing. */
export type SessionFile = {
  readonly path: string
  /** Appends a line. If this fails, `close` throws a CliError. */
  add(call: SessionCall): void
  close(): Promise<void>
}

/**
 * Creates a session file (JSON Lines) in `folder`. The first line describes the file (`{ "format":
 * "affidavit-session", "version": 1, "gateway", "started" }`). Each call has one line. Rejects with
 * the fault of the file system.
 */
export async function createSessionFile(
  folder: string,
  { gateway, startedAt }: { readonly gateway: string; readonly startedAt: Date },
): Promise<SessionFile> {
  const started = startedAt.toISOString()
  const time = started.replace(/[-:]|\.\d+/g, '')
  const name = `session-${time}-${randomBytes(4).toString('hex')}.jsonl`
  const path = join(folder, name)
  const file = await open(path, 'ax', 0o600)
  let fault: unknown = null
  const write = (line: object) =>
    file.appendFile(`${JSON.stringify(line)}\n`).catch((caught: unknown) => {
      fault ??= caught
    })
  let written = write({ format: SESSION_FORMAT, version: 1, gateway, started })
  return {
    path,
    add(call) {
      // The caller chose the name: a long or malformed name would make the file unusable.
      const model = call.model?.toWellFormed().slice(0, MODEL_LENGTH_MAX) ?? null
      written = written.then(() => write({ ...call, model }))
    },
    async close() {
      await written
      await file.sync().catch(() => undefined)
      await file.close()
      if (fault !== null)
        throw new CliError(`cannot write ${path}: ${fault instanceof Error ? fault.message : ''}`)
    },
  }
}

/** The calls of a session. `isCut` is true if the last line is incomplete. */
export type SavedSession = { readonly calls: readonly SessionCall[]; readonly isCut: boolean }

/**
 * Reads the calls from a session file. Returns null if attacker-controlled `bytes` are not such a
 * file. Ignores an incomplete last line, which a crash may leave. For a malformed line, throws
 * CliError with the line's number. Does NOT prove anything: only the proofs do.
 */
export function readSession(bytes: Uint8Array): SavedSession | null {
  const end = bytes.indexOf(LINE_FEED)
  if (end < 0 || end > FIRST_LINE_BYTES_MAX) return null
  const head = parseLine(bytes.subarray(0, end))
  if (head === null || memberOf(head, 'format') !== SESSION_FORMAT) return null
  if (memberOf(head, 'version') !== 1)
    throw new CliError('expected a session file of version 1: a later affidavit wrote this one')
  const last = bytes.lastIndexOf(LINE_FEED)
  const lines = splitLines(bytes.subarray(end + 1, last + 1))
  return {
    calls: lines.map((line, at) => readCall(line, `line ${at + 2} of the session file`)),
    isCut: last < bytes.length - 1,
  }
}

const LINE_FEED = 0x0a
/** Only the start of the first line is searched: a proof or a bundle may be one long line. */
const FIRST_LINE_BYTES_MAX = 4096

function splitLines(bytes: Uint8Array): readonly Uint8Array[] {
  const lines: Uint8Array[] = []
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(LINE_FEED, at)
    lines.push(bytes.subarray(at, end < 0 ? bytes.length : end))
    at = end < 0 ? bytes.length : end + 1
  }
  return lines
}

/** Returns null if the line is not a JSON object. */
function parseLine(line: Uint8Array): JsonObject | null {
  const json = orNull(() => parseExactJson(line), JsonError)
  return json !== null && isJsonObject(json) ? json : null
}

/** The hash becomes a part of a file name, so only this form is safe. */
const HASH = /^[0-9a-f]{64}$/
const VERDICTS = ['checked', 'refused', 'error', 'left'] as const

function readCall(line: Uint8Array, where: string): SessionCall {
  const json = parseLine(line)
  if (json === null) throw new CliError(`expected ${where} to be a JSON object`)
  try {
    const call = membersOf(json, where, ['at', 'verdict', 'model', 'hash', 'detail'])
    const verdict = VERDICTS.find((known) => known === call.verdict)
    const hash = textOrNull(call.hash, `hash in ${where}`)
    const isFit = hash === null ? verdict !== 'checked' : verdict === 'checked' && HASH.test(hash)
    if (verdict === undefined || !isFit)
      throw new CliError(`expected ${where} to have a verdict, and a hash where it is "checked"`)
    return {
      at: textOf(call.at, `at in ${where}`),
      verdict,
      model: textOrNull(call.model, `model in ${where}`),
      hash,
      detail: textOrNull(call.detail, `detail in ${where}`),
    }
  } catch (fault) {
    if (fault instanceof FormatError) throw new CliError(fault.message)
    throw fault
  }
}

function textOrNull(value: JsonObject[string] | undefined, what: string): string | null {
  return value === null ? null : textOf(value, what)
}
