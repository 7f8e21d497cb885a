import { type DemoAnswer, event, eventFrame, type NamedEvent, writeFrames } from './answers.ts'
import { chooseAnswer, splitTokens, thinkAbout } from './choices.ts'
import { countInput, type MessagesRequest, questionOfMessages } from './messages-request.ts'
import { nameAnswer } from './responses-answer.ts'

type Block = {
  readonly whole: object
  /** The block as it is before `deltas` add the content. */
  readonly start: object
  readonly deltas: readonly object[]
  readonly tokens: number
}

type MessagesAnswer = {
  readonly message: {
    readonly [name: string]: unknown
    readonly stop_reason: string
    readonly stop_sequence: string | null
    readonly usage: { readonly input_tokens: number; readonly output_tokens: number }
  }
  readonly blocks: readonly Block[]
}

/** The same request gets the same answer. Throws DemoError. */
export function answerMessages(request: MessagesRequest): DemoAnswer {
  const question = questionOfMessages(request)
  const answer = chooseAnswer(question)
  const name = nameAnswer(request)
  const { type: thinks = 'disabled' } = request.thinking ?? {}
  const thinking = thinks === 'disabled' ? [] : thinkAbout(question)
  const said =
    answer.kind === 'calls'
      ? answer.calls.map((call, at) => toolBlock(`toolu_${name}_${at}`, call))
      : [textBlock(answer.tokens)]
  const blocks = [...(thinking.length === 0 ? [] : [thinkingBlock(thinking)]), ...said]
  const message = {
    id: `msg_${name}`,
    type: 'message',
    role: 'assistant',
    model: request.model,
    content: blocks.map(({ whole }) => whole),
    stop_reason: stopOf(answer),
    stop_sequence: null,
    usage: {
      input_tokens: countInput(request),
      output_tokens: blocks.reduce((sum, { tokens }) => sum + tokens, 0),
    },
  }
  return {
    whole: () => message,
    frames: () => writeFrames(writeEvents({ message, blocks }), eventFrame),
    end: '',
  }
}

function stopOf(answer: ReturnType<typeof chooseAnswer>): string {
  if (answer.kind === 'calls') return 'tool_use'
  if (answer.kind === 'refusal') return 'refusal'
  return answer.isCut ? 'max_tokens' : 'end_turn'
}

function* writeEvents({ message, blocks }: MessagesAnswer): Generator<NamedEvent> {
  const { stop_reason, stop_sequence, usage } = message
  const begun = {
    ...message,
    content: [],
    stop_reason: null,
    usage: { ...usage, output_tokens: 0 },
  }
  yield event('message_start', { message: begun })
  yield event('ping', {})
  for (const [index, { start, deltas }] of blocks.entries()) {
    yield event('content_block_start', { index, content_block: start })
    for (const delta of deltas) yield event('content_block_delta', { index, delta })
    yield event('content_block_stop', { index })
  }
  const { output_tokens } = usage
  yield event('message_delta', { delta: { stop_reason, stop_sequence }, usage: { output_tokens } })
  yield event('message_stop', {})
}

function textBlock(tokens: readonly string[]): Block {
  return {
    whole: { type: 'text', text: tokens.join('') },
    start: { type: 'text', text: '' },
    deltas: tokens.map((text) => ({ type: 'text_delta', text })),
    tokens: tokens.length,
  }
}

function thinkingBlock(tokens: readonly string[]): Block {
  // A made-up signature. Callers do not check it.
  const signature = Buffer.from('demonstration').toString('base64')
  return {
    whole: { type: 'thinking', thinking: tokens.join(''), signature },
    start: { type: 'thinking', thinking: '', signature: '' },
    deltas: [
      ...tokens.map((thinking) => ({ type: 'thinking_delta', thinking })),
      { type: 'signature_delta', signature },
    ],
    tokens: tokens.length,
  }
}

function toolBlock(id: string, call: { readonly name: string; readonly arguments: string }): Block {
  const tokens = splitTokens(call.arguments)
  const named = { type: 'tool_use', id, name: call.name }
  return {
    whole: { ...named, input: JSON.parse(call.arguments) },
    start: { ...named, input: {} },
    deltas: tokens.map((partial_json) => ({ type: 'input_json_delta', partial_json })),
    tokens: tokens.length,
  }
}
