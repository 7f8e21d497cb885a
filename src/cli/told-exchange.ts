import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../attestation/json/value.ts'
import { printable } from './printable.ts'

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
    bound('model', textOf(memberOf(request, 'model') ?? null)),
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
      const told = tellMessage(isJsonObject(choice) ? (memberOf(choice, 'message') ?? null) : choice)
      return choices.length === 1 ? told : { ...told, who: `choice ${numberOf(choice)}` }
    }),
    ...(later > 0 ? [bound('…', `${later} choices more`)] : []),
  ]
}

function numberOf(choice: Json): string {
  return isJsonObject(choice) ? textOf(memberOf(choice, 'index') ?? null) : ''
}

function tellMessage(message: Json): ToldMessage {
  if (!isJsonObject(message)) return bound('?', textOf(message))
  const parts = Object.entries(message).flatMap(([name, value]) => tellMember(name, value))
  return bound(textOf(memberOf(message, 'role') ?? null), parts.join('\n'))
}

function tellMember(name: string, value: Json): readonly string[] {
  if (value === null || name === 'role') return []
  if (name === 'content') return isJsonArray(value) ? value.map(tellPart) : [textOf(value)]
  if (name === 'tool_calls' && isJsonArray(value)) return value.map((call) => `[calls ${tellCall(call)}]`)
  if (name === 'function_call') return [`[calls ${tellCall({ function: value })}]`]
  return [`[${name}: ${textOf(value)}]`]
}

function tellPart(part: Json): string {
  const text = isJsonObject(part) && memberOf(part, 'type') === 'text' ? memberOf(part, 'text') : undefined
  return typeof text === 'string' ? text : `[part: ${textOf(part)}]`
}

function tellCall(call: Json): string {
  const called = isJsonObject(call) ? (memberOf(call, 'function') ?? null) : null
  if (!isJsonObject(called)) return textOf(call)
  return `${textOf(memberOf(called, 'name') ?? null)}(${textOf(memberOf(called, 'arguments') ?? null)})`
}

function textOf(value: Json): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function listOf(value: Json | undefined): readonly Json[] {
  return isJsonArray(value) ? value : []
}

function bound(who: string, text: string): ToldMessage {
  return { who, text: text.slice(0, TOLD_LENGTH_MAX), left_out: Math.max(0, text.length - TOLD_LENGTH_MAX) }
}
