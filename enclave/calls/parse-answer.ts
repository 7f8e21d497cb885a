import { stripProofMembers } from '#attestation/completion-hash.ts'
import { readFinishReason } from '#attestation/dialects/chat/finish-reason.ts'
import { callId, withoutOddTexts } from '#attestation/dialects/chat/normalize-chunk.ts'
import { fillLogprobs } from '#attestation/dialects/chat/read-choice.ts'
import { readWholeCalls } from '#attestation/dialects/chat/tool-calls.ts'
import { FormatError } from '#attestation/errors.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { statedFault } from '../call-fault.ts'
import { errorIn } from '../protocol/refusal.ts'

/**
 * Values for members that every completion has but the provider left out (interface 2.2).
 * `provider` is for faults.
 */
export type AnswerFallback = {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly provider: string
}

/**
 * Parses the completion in a provider's answer to a call without stream (attacker-controlled).
 * Removes proof members, because only the gateway may send them. Fills in missing members,
 * with null for unknown values: `id`, `object`, `created`, `model`, and in choices `index`,
 * `logprobs`, `finish_reason`, `role`, `content`, `refusal`, `audio`. Calls, log probabilities and
 * words of finish_reason get the form that streams have (dialects/chat/rules.md). Throws CallFault
 * for an answer with an error, and FormatError when the answer is not a completion.
 */
export function parseAnswer(answer: JsonObject, fallback: AnswerFallback): JsonObject {
  checkNoError(answer)
  if (!isJsonArray(answer.choices) || answer.choices.length === 0)
    throw notCompletion('expected choices')
  const { id, created, model } = answer
  return {
    ...withoutOddTexts(stripProofMembers(answer)),
    id: typeof id === 'string' && id !== '' ? id : fallback.id,
    object: 'chat.completion',
    created:
      typeof created === 'number' && Number.isSafeInteger(created) ? created : fallback.created,
    model: typeof model === 'string' && model !== '' ? model : fallback.model,
    choices: answer.choices.map((choice, position) => fillChoice(choice, position, fallback)),
  }
}

/** Throws CallFault `provider_error` or `provider_refused` for an answer with an error. */
export function checkNoError(answer: Json): void {
  const reason = errorIn(answer)
  if (reason !== null) throw statedFault(reason)
}

function fillChoice(choice: Json, position: number, fallback: AnswerFallback): JsonObject {
  if (!isJsonObject(choice) || !isJsonObject(choice.message))
    throw notCompletion('expected a message in each choice')
  const { message, stop_reason: stated = null } = choice
  const finish = readFinishReason(choice.finish_reason)
  const calls = readWholeCalls(message, (place) => callId(fallback, position, place))
  const word = stated ?? finish?.word ?? null
  return {
    ...choice,
    ...(word === null ? {} : { stop_reason: word }),
    index: choice.index ?? position,
    message: {
      ...message,
      ...calls,
      role: 'assistant',
      content: message.content ?? null,
      refusal: message.refusal ?? null,
      audio: message.audio ?? null,
    },
    logprobs: fillLogprobs(choice.logprobs),
    finish_reason: finish?.reason ?? null,
  }
}

function notCompletion(expected: string): FormatError {
  return new FormatError('invalid_form', expected)
}
