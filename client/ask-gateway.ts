import { JsonError } from '#attestation/json/json-error.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { AffidavitError, messageOf, shown } from './errors.ts'
import {
  callGateway,
  errorWordsOf,
  type GatewayAnswer,
  type GatewayOptions,
  NoAnswer,
  RECONNECT_PAUSE_MS,
} from './gateway.ts'

/** Bytes. Enough for lists of notaries, and for documents with their configuration. */
const REPLY_BYTES_MAX = 4 * 1024 * 1024

/**
 * Statuses of an overload. For example, a gateway limits how many documents it makes per second.
 */
const OVERLOADED: ReadonlySet<number> = new Set([429, 503])
const TRIES_MAX = 4
const TRY_PAUSE_MS = 500

export type AskedGateway = GatewayOptions & { readonly timeoutMs: number }

type GatewayReply = { readonly json: JsonObject; readonly text: string }

/** `withKey`: the request contains the API key. */
type AskOptions = {
  readonly withKey?: boolean
  readonly bytesMax?: number
  readonly signal?: AbortSignal | undefined
}

/** Does the same as readFromGateway, for a reply that is a JSON object. */
export async function askGateway(
  gateway: AskedGateway,
  path: string,
  options: AskOptions = {},
): Promise<GatewayReply> {
  const bytes = await readFromGateway(gateway, path, options)
  return { json: readReply(bytes, path), text: new TextDecoder().decode(bytes) }
}

/**
 * Requests `path` from the gateway, and repeats the request once if the connection breaks. The
 * gateway's `timeoutMs` limits all attempts together. Throws AffidavitError `unreachable`,
 * `gateway_error` (with the status), `redirected`, `invalid_reply`, and the abort reason of
 * `signal`.
 */
export async function readFromGateway(
  gateway: AskedGateway,
  path: string,
  { withKey = false, bytesMax = REPLY_BYTES_MAX, signal }: AskOptions = {},
): Promise<Uint8Array> {
  const timeout = AbortSignal.timeout(gateway.timeoutMs)
  const apiKey = withKey ? gateway.apiKey : null
  try {
    const { status, bytes } = await callGateway({ ...gateway, apiKey, timeoutMs: null }, path, {
      bytesMax,
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      retryAfterMs: retryRead(),
    })
    if (status >= 200 && status < 300) return bytes
    const words = errorWordsOf(bytes)?.message
    throw new AffidavitError(
      'gateway_error',
      `${path}: status ${status}: ${words === undefined ? 'no message' : shown(words)}`,
    )
  } catch (fault) {
    signal?.throwIfAborted()
    if (fault instanceof AffidavitError || !(fault instanceof NoAnswer || timeout.aborted))
      throw fault
    throw describeNoAnswer(path, fault)
  }
}

/**
 * Repeats the request after an overload, and once after a lost connection: the gateway may have
 * closed an idle connection.
 */
function retryRead(): (tried: number, outcome: GatewayAnswer | NoAnswer) => number | null {
  let isBroken = false
  return (tried, outcome) => {
    if (!(outcome instanceof NoAnswer))
      return OVERLOADED.has(outcome.status) && tried < TRIES_MAX ? TRY_PAUSE_MS * tried : null
    if (outcome.code !== 'unreachable' || isBroken) return null
    isBroken = true
    return RECONNECT_PAUSE_MS
  }
}

function describeNoAnswer(path: string, fault: unknown): AffidavitError {
  const code = fault instanceof NoAnswer ? fault.code : 'too_slow'
  switch (code) {
    case 'redirected':
    case 'too_large':
      return new AffidavitError(
        code === 'redirected' ? code : 'invalid_reply',
        `${path}: ${messageOf(fault)}`,
      )
    case 'unreachable':
    case 'too_slow': {
      const cause = fault instanceof NoAnswer ? fault.cause : fault
      return new AffidavitError('unreachable', `${path}: ${messageOf(cause)}`, { cause })
    }
  }
}

function readReply(bytes: Uint8Array, path: string): JsonObject {
  let json: Json
  try {
    json = parseExactJson(bytes)
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause
    throw new AffidavitError('invalid_reply', `${path}: ${cause.message}`, { cause })
  }
  if (isJsonObject(json)) return json
  throw new AffidavitError('invalid_reply', `${path}: expected a JSON object`)
}
