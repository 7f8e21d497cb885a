import type { IncomingHttpHeaders } from 'node:http'
import { FormatError } from '../../attestation/errors.ts'
import { parseLenientJson } from '../../attestation/json/parse-lenient.ts'
import { isJsonArray, isJsonObject, type Json } from '../../attestation/json/value.ts'
import { ProviderRefusal } from '../call-fault.ts'

/** Longest message and code of a provider that are passed on, characters. */
export const PROVIDER_MESSAGE_CHARACTERS_MAX = 2_000
export const PROVIDER_CODE_CHARACTERS_MAX = 100

/** Body of a refusal that is read, bytes. */
export const REFUSAL_BYTES_MAX = 64 * 1024

/** What a provider says went wrong. */
type ProviderErrorText = { readonly message: string; readonly code: string | null }

/**
 * The refusal that a provider's 4xx is. Status, headers and body are the provider's:
 * attacker-controlled.
 */
export function parseRefusal(answer: {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Uint8Array
}): ProviderRefusal {
  const { message, code } = describeProviderError(readJson(answer.body))
  const retryAfter = answer.headers['retry-after'] ?? ''
  return new ProviderRefusal({
    status: answer.status,
    message,
    ...(code === null ? {} : { provider_code: code }),
    ...(/^\d{1,5}$/.test(retryAfter) ? { retry_after_seconds: Number(retryAfter) } : {}),
  })
}

/**
 * Message and code of a provider's error body, whichever form it has: `{error: {message, code |
 * type}}` (OpenAI's), `{error: text}`, `{message}`, `{detail}`, or an array of one of them
 * (Google's). Without any, a general text.
 */
export function describeProviderError(body: Json): ProviderErrorText {
  const outer = isJsonArray(body) ? (body[0] ?? null) : body
  if (!isJsonObject(outer)) return { message: NO_MESSAGE, code: null }
  const error = outer.error ?? null
  const source = isJsonObject(error) ? error : outer
  const candidates = [error, source.message, source.detail]
  const message = candidates.find((value) => typeof value === 'string' && value !== '')
  const code = [source.code, source.type, source.status].find(
    (value) => typeof value === 'string' && value !== '',
  )
  return {
    message:
      typeof message === 'string' ? cut(message, PROVIDER_MESSAGE_CHARACTERS_MAX) : NO_MESSAGE,
    code: typeof code === 'string' ? cut(code, PROVIDER_CODE_CHARACTERS_MAX) : null,
  }
}

const NO_MESSAGE = 'The provider gave no reason.'

function cut(text: string, charactersMax: number): string {
  return text.slice(0, charactersMax).toWellFormed()
}

function readJson(body: Uint8Array): Json {
  try {
    return parseLenientJson(body)
  } catch (error) {
    if (error instanceof FormatError) return null
    throw error
  }
}
