import {
  compareExchange,
  type ExchangeCheck,
  type KeptAnswer,
  type KeptExchange,
  matchingParts,
  responseOf,
} from '../../../attestation/compare-exchange.ts'
import { FormatError } from '../../../attestation/errors.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'
import { CliError, EXIT_CODES, orNull } from '../faults.ts'
import { readSource } from '../files.ts'
import { printable } from '../printable.ts'
import { memberAt, readKeptAnswer, readKeptRequest } from './read-evidence.ts'

/** The files of what a caller kept, as commander gives them. */
export type KeptOptions = { readonly request?: string; readonly answer?: string }

/** What a caller kept, as read: the request's bytes too, for a source that is an answer itself. */
export type KeptFiles = {
  readonly requestBody: Uint8Array | null
  readonly answer: KeptAnswer | null
  /** Of a saved proof that was given as the answer, which has both. */
  readonly savedRequest: Json | null
}

/**
 * Reads the files of what a caller kept. Throws CliError for those that cannot be read or are none,
 * and when standard input is named more than once, `source` included.
 */
export async function readKeptFiles(
  source: string,
  { request, answer }: KeptOptions,
): Promise<KeptFiles> {
  if ([source, request, answer].filter((place) => place === '-').length > 1)
    throw new CliError('expected standard input (-) to be named once', EXIT_CODES.usage)
  const requestBody = request === undefined ? null : await readSource(request)
  const body = answer === undefined ? null : await readSource(answer)
  const kept = body && readKeptAnswer(body)
  const savedRequest = kept?.request ?? null
  if (requestBody !== null && savedRequest !== null)
    throw new CliError(
      'expected no --request: the saved proof has the request that was sent',
      EXIT_CODES.usage,
    )
  return { requestBody, answer: kept?.answer ?? null, savedRequest }
}

/** What is to be compared with evidence. */
export function keptOf({ requestBody, answer, savedRequest }: KeptFiles): KeptExchange {
  return {
    ...(savedRequest === null ? {} : { request: savedRequest }),
    ...(requestBody === null ? {} : { request: readKeptRequest(requestBody) }),
    ...(answer === null ? {} : { answer }),
  }
}

/** What came of comparing what a caller kept with evidence, and what was asked and said. */
export type ComparedExchange = {
  readonly checks: readonly ExchangeCheck[]
  readonly told: ToldExchange
}

/**
 * Compares what a caller kept with the record of the evidence, and tells the completion: as the
 * evidence has it; where that left a part out, as the caller kept it, once it was found to be the
 * same.
 */
export function compareKept(evidence: Json, kept: KeptExchange): ComparedExchange {
  const checks = compareExchange(isJsonObject(evidence) ? evidence : {}, kept)
  const { request, response } = matchingParts(checks, kept)
  return {
    checks,
    told: tellExchange({
      request: objectOf(memberAt(evidence, 'request')) ?? request,
      response: objectOf(memberAt(evidence, 'response')) ?? response,
    }),
  }
}

/**
 * Tells an answer with the request that it answers: both are the caller's own, and have checks of
 * their own.
 */
export function tellKept(
  answer: Json,
  given: { readonly request: Json; readonly chunks: readonly JsonObject[] | undefined },
): ComparedExchange {
  const { request, chunks } = given
  const kept: KeptAnswer =
    chunks === undefined ? { kind: 'whole', answer } : { kind: 'stream', chunks }
  return {
    checks: [],
    told: tellExchange({ request: objectOf(request), response: readResponse(kept) }),
  }
}

/** Null for chunks that amount to no answer. */
function readResponse(answer: KeptAnswer): JsonObject | null {
  return orNull(() => responseOf(answer), FormatError)
}

function objectOf(value: Json | undefined): JsonObject | null {
  return isJsonObject(value) ? value : null
}

/** Longest part of one message that is told, characters. */
export const TOLD_LENGTH_MAX = 2_000
/**
 * Most messages of a request (the last ones) and most choices of a response (the first ones) that
 * are told.
 */
export const TOLD_MESSAGES_MAX = 16

/** One message in words. All of it is text from outside, to be printed as such. */
type ToldMessage = {
  /** The role, or whose choice it is. */
  readonly who: string
  readonly text: string
  /** Characters of the text that are not told. */
  readonly left_out: number
}

/** What was asked and said, bounded. Null: the part is not known. */
export type ToldExchange = {
  readonly asked: readonly ToldMessage[] | null
  readonly said: readonly ToldMessage[] | null
}

/**
 * Tells a completion for people: text of messages and choices, tool calls, refusals; of anything
 * else its name, so that nothing is passed over in silence.
 */
export function tellExchange(completion: {
  readonly request: JsonObject | null
  readonly response: JsonObject | null
}): ToldExchange {
  const { request, response } = completion
  return { asked: request && tellRequest(request), said: response && tellResponse(response) }
}

/**
 * Gives what was told as lines, each line of a message behind a bar, so that no message can look
 * like a line of the report. Control characters, terminal escapes and what turns the direction of
 * text are written as escapes.
 */
export function printExchange({ asked, said }: ToldExchange): string {
  const part = (title: string, messages: readonly ToldMessage[] | null) =>
    messages === null ? '' : `${title}\n${messages.map(printMessage).join('')}`
  return `${part('asked', asked)}${part('said', said)}`
}

const WHO_WIDTH = 12

/** A text of line feeds alone must not push the report off the screen. */
const LINES_MAX = 40

function printMessage({ who, text, left_out: leftOut }: ToldMessage): string {
  const lines = text.split('\n')
  const rest = leftOut + lines.slice(LINES_MAX).join('\n').length
  const shown = [
    ...lines.slice(0, LINES_MAX).map(printLine),
    ...(rest > 0 ? [`… and ${rest} characters more`] : []),
  ]
  const name = printable(who.slice(0, WHO_WIDTH)).padEnd(WHO_WIDTH)
  const margin = ' '.repeat(WHO_WIDTH)
  return shown.map((line, at) => `  ${at === 0 ? name : margin} | ${line}\n`).join('')
}

/** A line may be longer than printable shows at once. */
function printLine(line: string): string {
  return (line.match(/[\s\S]{1,400}/gu) ?? []).map(printable).join('')
}

function tellRequest(request: JsonObject): readonly ToldMessage[] {
  const messages = listOf(memberOf(request, 'messages'))
  const rest = Object.keys(request).filter((name) => name !== 'messages' && name !== 'model')
  const earlier = Math.max(0, messages.length - TOLD_MESSAGES_MAX)
  return [
    bound('model', textOf(memberAt(request, 'model'))),
    ...(rest.length > 0 ? [bound('with', rest.join(', '))] : []),
    ...(earlier > 0 ? [bound('…', `${earlier} earlier messages`)] : []),
    ...messages.slice(-TOLD_MESSAGES_MAX).map(tellMessage),
  ]
}

function tellResponse(response: JsonObject): readonly ToldMessage[] {
  const choices = listOf(memberOf(response, 'choices'))
  const later = Math.max(0, choices.length - TOLD_MESSAGES_MAX)
  return [
    ...choices.slice(0, TOLD_MESSAGES_MAX).map((choice) => {
      const told = tellMessage(isJsonObject(choice) ? memberOf(choice, 'message') : choice)
      if (choices.length === 1) return told
      const number = isJsonObject(choice) ? textOf(memberOf(choice, 'index')) : ''
      return { ...told, who: `choice ${number}` }
    }),
    ...(later > 0 ? [bound('…', `${later} choices more`)] : []),
  ]
}

function tellMessage(message: Json | undefined): ToldMessage {
  if (!isJsonObject(message)) return bound('?', textOf(message))
  const parts = Object.entries(message).flatMap(([name, value]) => tellMember(name, value))
  return bound(textOf(memberOf(message, 'role')), parts.join('\n'))
}

function tellMember(name: string, value: Json): readonly string[] {
  if (value === null || name === 'role') return []
  if (name === 'content') return isJsonArray(value) ? value.map(tellPart) : [textOf(value)]
  if (name === 'tool_calls' && isJsonArray(value))
    return value.map((call) => `[calls ${tellCall(call)}]`)
  if (name === 'function_call') return [`[calls ${tellCall({ function: value })}]`]
  return [`[${name}: ${textOf(value)}]`]
}

function tellPart(part: Json): string {
  const text = memberAt(part, 'type') === 'text' ? memberAt(part, 'text') : undefined
  return typeof text === 'string' ? text : `[part: ${textOf(part)}]`
}

function tellCall(call: Json): string {
  const called = memberAt(call, 'function')
  if (!isJsonObject(called)) return textOf(call)
  return `${textOf(memberOf(called, 'name'))}(${textOf(memberOf(called, 'arguments'))})`
}

/** A member that is not there reads as null. */
function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null)
}

function listOf(value: Json | undefined): readonly Json[] {
  return isJsonArray(value) ? value : []
}

function bound(who: string, text: string): ToldMessage {
  return {
    who,
    text: text.slice(0, TOLD_LENGTH_MAX),
    left_out: Math.max(0, text.length - TOLD_LENGTH_MAX),
  }
}
