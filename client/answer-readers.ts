import { encodeUtf8 } from '#attestation/bytes.ts'
import type { KeptAnswer } from '#attestation/compare-exchange.ts'
import { PROOF_MEMBERS } from '#attestation/completion-hash.ts'
import { addChunk, emptyAssembly } from '#attestation/dialects/chat/assemble-completion.ts'
import { readLines } from '#attestation/dialects/chat/kept-events.ts'
import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import { type EventDialect, proofOfEvent } from '#attestation/dialects/dialects.ts'
import { readNamedEvent } from '#attestation/dialects/event-text.ts'
import { openKeptStream } from '#attestation/dialects/kept-stream.ts'
import { FormatError } from '#attestation/errors.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import {
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '#attestation/json/value.ts'
import { readEvent } from '#attestation/verify-stream.ts'
import { createAnswerSize } from './answer-size.ts'
import { describeGatewayError } from './check-answer.ts'
import { AffidavitError } from './errors.ts'

export type KeptStreamedAnswer = Exclude<KeptAnswer, { readonly kind: 'whole' }>

/** Accepts only streams that every reader assembles to the same answer. */
export type AnswerStreamReader = {
  /**
   * Reads the text of one event and returns its kind. `unshown`: no content, such as a comment or a
   * ping. `shown`: content. `proof`: the proof, before the end of the stream. `end`: the stream's
   * end. Throws AffidavitError, FormatError and JsonError.
   */
  read(text: string): 'unshown' | 'shown' | 'proof' | 'end'
  kept(): KeptStreamedAnswer
}

/** Reads streams whose last chunk has the proof. `[DONE]` follows this chunk. */
export function createChunkReader(): AnswerStreamReader {
  const assembly = emptyAssembly()
  const size = createAnswerSize()
  const chunks: JsonObject[] = []
  let hasProof = false
  return {
    read(text) {
      refuseErrorEvent(text)
      const [data] = readEvent(text)
      if (data === undefined) return 'unshown'
      if (data === '[DONE]') return 'end'
      if (hasProof) throw invalid('expected nothing but [DONE] after the chunk with the proof')
      size.add(data)
      const chunk = parseExactJson(encodeUtf8(data))
      if (!isJsonObject(chunk)) throw invalid('expected every chunk to be an object')
      refuseError(memberOf(chunk, 'error'))
      addChunk(assembly, chunk)
      hasProof = memberOf(chunk, 'receipt') !== undefined
      if (!hasProof && PROOF_MEMBERS.some((name) => Object.hasOwn(chunk, name)))
        throw invalid('expected no part of a proof before the last chunk')
      chunks.push(chunk)
      return hasProof ? 'proof' : 'shown'
    },
    kept: () => ({ kind: 'stream', chunks }),
  }
}

/** Reads streams whose last event has the proof. */
export function createNamedEventReader(dialect: EventDialect): AnswerStreamReader {
  const size = createAnswerSize()
  const reader = openKeptStream(dialect, size.add)
  const events: DialectEvent[] = []
  return {
    read(text) {
      refuseErrorEvent(text)
      const event = readNamedEvent(text, size.add)
      if (event === null) return 'unshown'
      // A gateway that fails ends the stream with an error, and without a proof.
      if (proofOfEvent(dialect, event) === undefined)
        refuseError(
          memberOf(event.data, 'error') ?? memberAt(event.data, dialect.proofIn ?? '', 'error'),
        )
      const place = reader.add(event)
      if (place === 'bare') return 'unshown'
      events.push(event)
      if (place === 'last') withoutMissingProof(() => reader.end())
      return place === 'last' ? 'end' : 'shown'
    },
    kept: () => ({ kind: 'events', events }),
  }
}

/** The gateway ends a failed stream with an error event (interface, part 6). */
function refuseErrorEvent(text: string): void {
  const { names, data } = readLines(text)
  if (data === null || !names.includes('error')) return
  createAnswerSize().add(data)
  const json = parseExactJson(encodeUtf8(data))
  const error = isJsonObject(json) ? (memberOf(json, 'error') ?? json) : null
  throw new AffidavitError('error_in_answer', describeGatewayError(error), { cause: error })
}

function refuseError(error: Json | undefined): void {
  if (error === undefined || error === null) return
  throw new AffidavitError('error_in_answer', describeGatewayError(error), { cause: error })
}

function withoutMissingProof(end: () => unknown): void {
  try {
    end()
  } catch (fault) {
    if (!(fault instanceof FormatError && fault.code === 'missing_proof')) throw fault
    throw new AffidavitError('no_proof', fault.message, { cause: fault })
  }
}

/** Throws AffidavitError `invalid_stream` instead of FormatError and JsonError. */
export function withStreamError<Type>(read: () => Type): Type {
  try {
    return read()
  } catch (fault) {
    if (!(fault instanceof FormatError || fault instanceof JsonError)) throw fault
    throw new AffidavitError('invalid_stream', fault.message, { cause: fault })
  }
}

function invalid(message: string): AffidavitError {
  return new AffidavitError('invalid_stream', message)
}
