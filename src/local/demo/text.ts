import type { DemoModel } from './models.ts'
import { createRandom, pickFrom } from './random.ts'
import { type DemoMessage, type DemoRequest, textOf } from './request.ts'

/**
 * What every text of the demonstration begins with, so that nobody takes it for a model's answer.
 */
const DEMO_LABEL = '[demonstration]'
/** Most words that `demo/lorem` writes. */
const WORDS_MAX = 100_000
const WORDS_DEFAULT = 40

/**
 * Gives the text that a model answers for one choice. Depends on the model, the messages, `seed`
 * and the choice's index alone, so that the same request has the same answer, streamed or not.
 */
export function writeText(request: DemoRequest, model: DemoModel, choiceIndex: number): string {
  const last = request.messages.at(-1)
  const said = last === undefined ? '' : textOf(last)
  if (model === 'demo/refusal') return `${DEMO_LABEL} This model declines every request.`
  if (last?.role === 'tool' || last?.role === 'function')
    return `${DEMO_LABEL} The tool answered: ${said}`
  if (model === 'demo/lorem')
    return writeLorem(request, lastUserText(request.messages), choiceIndex)
  return `${DEMO_LABEL} You said: ${lastUserText(request.messages)}`
}

/** Gives the text of the last message whose role is user, or the empty text. */
export function lastUserText(messages: readonly DemoMessage[]): string {
  const found = messages.findLast((message) => message.role === 'user')
  return found === undefined ? '' : textOf(found)
}

const WORDS: readonly [string, ...string[]] = [
  'lorem',
  'ipsum',
  'dolor',
  'sit',
  'amet',
  'consectetur',
  'adipiscing',
  'elit',
  'sed',
  'do',
  'eiusmod',
  'tempor',
  'incididunt',
  'ut',
  'labore',
  'et',
  'dolore',
  'magna',
  'aliqua',
  'enim',
]

function writeLorem(request: DemoRequest, asked: string, choiceIndex: number): string {
  const random = createRandom(JSON.stringify([request.messages, request.seed ?? null, choiceIndex]))
  const wanted = /(?:^|\s)(\d{1,6}) words\b/.exec(asked)?.[1]
  const count = Math.min(WORDS_MAX, wanted === undefined ? WORDS_DEFAULT : Number(wanted))
  const words = Array.from({ length: count }, () => pickFrom(WORDS, random))
  return [DEMO_LABEL, ...words].join(' ')
}
