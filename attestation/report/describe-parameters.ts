import { DEMANDS_MEMBER } from '../demands.ts'
import type { Json, JsonObject } from '../json/value.ts'
import { boundMessage, SHOWN_MESSAGES_MAX, type ShownMessage } from './shown-exchange.ts'

/**
 * Describes the parameters of `body`. Leaves out the conversation (the members that `content`
 * names), null members, and the demands to the gateway.
 */
export function describeParameters(
  body: JsonObject,
  content: readonly string[],
  writeValue: (name: string, value: Json) => string = (_, value) => textOf(value),
): readonly ShownMessage[] {
  const { model, [DEMANDS_MEMBER]: _, ...parameters } = body
  const given = Object.entries(parameters).filter(
    ([name, value]) => value !== null && !content.includes(name),
  )
  const lines = given.map(([name, value]) => `${plainName(name)}: ${writeValue(name, value)}`)
  const isShort = (line: string) => line.length <= PARAMETER_LENGTH_MAX && !line.includes('\n')
  const short = lines.filter(isShort)
  const long = lines.filter((line) => !isShort(line))
  return [
    boundMessage('model', textOf(model)),
    ...(short.length > 0 ? [boundMessage('with', short.join('\n'))] : []),
    ...long.slice(0, SHOWN_MESSAGES_MAX).map((line) => boundMessage('with', line)),
    ...leftOut(long.length - SHOWN_MESSAGES_MAX, 'parameters more'),
  ]
}

/** Maximum length, in characters, of a parameter that shares a message with other parameters. */
const PARAMETER_LENGTH_MAX = 120

/** A name that is not plain is written as JSON, so it cannot fake a line. */
export function plainName(name: string): string {
  return /^[\w.-]{1,64}$/.test(name) ? name : JSON.stringify(name)
}

/** Returns no message if `count` is 0 or less. */
export function leftOut(count: number, what: string): readonly ShownMessage[] {
  return count > 0 ? [boundMessage('…', `${count} ${what}`)] : []
}

/** A missing member is shown as null. */
export function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null)
}
