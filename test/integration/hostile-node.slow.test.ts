import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import {
  type AnswerScript,
  answerWith,
  finishChunk,
  roleChunk,
  type ScriptedNode,
  textChunk,
  usageChunk,
} from '../support/scripted-node.ts'

const LIMITS = {
  firstTokenMs: 400,
  tokenMs: 400,
  finishGraceMs: 200,
  runMs: 2_000,
  waitMs: 200,
  drainMs: 400,
  tickMs: 20,
  tendMs: 50,
  closeTimeoutMs: 300,
  retriesMax: 0,
  asideMs: 50,
  asideMaxMs: 50,
}
const MIB = 1024 * 1024
/** No caller waits longer, for any behaviour of a node. */
const CALL_MAX_MS = 5_000
const HONEST_TEXT = 'an honest answer'

let stage: PlainStage
let honest: ScriptedNode
beforeAll(async () => {
  stage = await openPlainStage({ limits: LIMITS })
  honest = await stage.connect({ model: 'honest', answer: answerWith(HONEST_TEXT) })
})
afterAll(() => stage.stop())

type Outcome = { readonly status: number; readonly code: string | null; readonly text: string }

async function call(model: string, isStream: boolean): Promise<Outcome> {
  const startedAt = performance.now()
  const reply = await fetch(`${stage.gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${stage.gateway.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model,
      stream: isStream,
      messages: [{ role: 'user', content: 'hello' }],
    }),
  })
  const text = await reply.text()
  expect(performance.now() - startedAt).toBeLessThan(CALL_MAX_MS)
  return isStream ? streamOutcome(reply.status, text) : wholeOutcome(reply.status, text)
}

function wholeOutcome(status: number, text: string): Outcome {
  const body = JSON.parse(text)
  if (status === 200) expectLegal(body.choices, 'message')
  return { status, code: body.error?.code ?? null, text: body.choices?.[0].message.content ?? '' }
}

/**
 * A stream ends either with [DONE] after a finish_reason, or with one error event: never with both,
 * never with neither.
 */
function streamOutcome(status: number, text: string): Outcome {
  const isWhole = text.endsWith('data: [DONE]\n\n')
  const events = text.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'))
  const errors = events.filter((event) => event.startsWith('event: error'))
  expect(errors).toHaveLength(isWhole ? 0 : 1)
  const chunks = events
    .filter((event) => event.startsWith('data: {'))
    .map((event) => JSON.parse(event.slice('data: '.length)))
  for (const { choices } of chunks) expectLegal(choices, 'delta')
  if (isWhole) expect(chunks.at(-1).choices[0].finish_reason).not.toBeNull()
  const [, data = ''] = errors[0]?.split('\ndata: ') ?? []
  const code = isWhole ? null : JSON.parse(data).error.code
  return {
    status,
    code,
    text: chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join(''),
  }
}

type Choice = {
  readonly index: unknown
  readonly finish_reason: unknown
  readonly [part: string]: unknown
}

function expectLegal(choices: readonly Choice[], part: 'message' | 'delta'): void {
  for (const choice of choices) {
    expect(choice.index).toBe(0)
    expect(['stop', 'length', 'tool_calls', 'content_filter', 'function_call', null]).toContain(
      choice.finish_reason,
    )
    expect(choice[part]).toBeTypeOf('object')
  }
}

/** Streams these chunks and then reports the end. */
const answerChunks =
  (...chunks: readonly unknown[]): AnswerScript =>
  ({ id }, node) => {
    for (const chunk of chunks) node.sendRun(id, { chunk, status: 1 })
    node.sendRun(id, { status: 2 })
  }

/** Sends frames unchanged, made from the id of the call. */
const answerFrames =
  (make: (id: string) => readonly unknown[]): AnswerScript =>
  ({ id }, node) => {
    for (const frame of make(id)) node.send(frame)
  }

const choiceWith = (members: object) => ({
  ...roleChunk(),
  choices: [{ index: 0, delta: {}, ...members }],
})
const nested = (depth: number) => JSON.parse(`${'['.repeat(depth)}1${']'.repeat(depth)}`)
const running = (id: string, chunk: unknown) => ({ request_id: id, error: null, chunk, status: 1 })
const done = (id: string) => ({ request_id: id, error: null, chunk: null, status: 2 })

/** Repeats a chunk until the gateway ends the call. */
const answerForEver =
  (chunk: () => unknown, pauseMs: number): AnswerScript =>
  async ({ id }, node) => {
    while (node.socket.readyState === node.socket.OPEN) {
      node.sendRun(id, { chunk: chunk(), status: 1 })
      await sleep(pauseMs)
    }
  }

/** The error that the caller gets, by what the node does before or after its first token. */
const BAD_ANSWERS: readonly (readonly [string, AnswerScript])[] = [
  ['is silent', () => undefined],
  ['sends no JSON', answerFrames(() => ['{"request_id":'])],
  ['sends a frame of 2 MiB', answerFrames((id) => [running(id, textChunk('x'.repeat(2 * MIB)))])],
  ['sends a status that there is not', answerFrames((id) => [{ ...done(id), status: 9 }])],
  ['sends a chunk that is a text', answerFrames((id) => [running(id, 'hello'), done(id)])],
  ['sends choices that are no list', answerChunks({ ...roleChunk(), choices: { length: 1e9 } })],
  [
    'sends chunks inside each other',
    answerChunks(choiceWith({ delta: { content: 'a', x: nested(2_000) } })),
  ],
  [
    'says that it broke off',
    answerChunks(textChunk('a'), choiceWith({ finish_reason: 'aborted' })),
  ],
  ['sends no reason', answerChunks(textChunk('a'))],
  [
    'sends content that is no text',
    answerChunks(choiceWith({ delta: { content: { toString: 1 } } }), finishChunk()),
  ],
  [
    'sends an error for a chunk',
    answerChunks(textChunk('a'), { error: { message: 'x' } }, finishChunk()),
  ],
  ['never stops', answerForEver(() => textChunk('a'), 10)],
  ['never stops saying nothing', answerForEver(() => roleChunk(), 10)],
  ['hangs up', (_, node) => node.socket.terminate()],
  [
    'hangs up after its first token',
    ({ id }, node) => {
      node.sendRun(id, { chunk: textChunk('a'), status: 1 })
      setTimeout(() => node.socket.terminate(), 30)
    },
  ],
  [
    'calls a request by what objects inherit',
    answerFrames(() => [running('__proto__', textChunk('a'))]),
  ],
]

describe('the caller of a node that', () => {
  it.each(BAD_ANSWERS)(
    'the caller of a node that %s gets a clear error in time, and other callers notice nothing',
    async (name, answer) => {
      const model = `bad ${name}`.replaceAll(' ', '-')
      for (const isStream of [false, true]) {
        const node = await stage.connect({ model, answer })
        const [outcome, ...others] = await Promise.all([
          call(model, isStream),
          call('honest', false),
          call('honest', true),
        ])
        expect(outcome.code).toMatch(/^(node_error|node_timeout|no_available_inference_nodes)$/)
        expect(outcome.status).toBe(
          isStream
            ? 200
            : outcome.code === 'node_timeout'
              ? 504
              : outcome.code === 'node_error'
                ? 502
                : 503,
        )
        for (const other of others)
          expect(other).toEqual({ status: 200, code: null, text: HONEST_TEXT })
        node.socket.terminate()
        await node.closed
      }
    },
  )

  it.each<readonly [string, AnswerScript]>([
    [
      'answers twice',
      async (frame, node) => {
        await answerWith('once')(frame, node)
        await answerWith('twice')(frame, node)
      },
    ],
    [
      'sends frames of other runs between its own',
      answerFrames((id) => [
        running('other', textChunk('stolen')),
        running(id, textChunk('once')),
        done('other'),
        running(id, finishChunk()),
        done(id),
      ]),
    ],
    [
      'has members of a proof',
      answerChunks(
        { ...textChunk('once'), hash: 'ab', signature: '0x', receipt: {} },
        finishChunk(),
      ),
    ],
    [
      'has the names of prototypes',
      answerFrames((id) => [
        `{"request_id":"${id}","error":null,"status":1,"chunk":{"__proto__":{"polluted":1},"choices":[{"index":0,"delta":{"content":"once","__proto__":{"polluted":1}},"finish_reason":null}]}}`,
        running(id, finishChunk()),
        done(id),
      ]),
    ],
  ])('the caller of a node that %s gets its answer and no more', async (name, answer) => {
    const model = `odd ${name}`.replaceAll(' ', '-')
    for (const isStream of [false, true]) {
      const node = await stage.connect({ model, answer })
      expect(await call(model, isStream)).toEqual({ status: 200, code: null, text: 'once' })
      expect(Reflect.get({}, 'polluted')).toBeUndefined()
      node.socket.terminate()
      await node.closed
    }
  })

  it.each([
    ['a billion tokens', usageChunk(1e9, 1e9)],
    ['a half', usageChunk(0.5, 0.5)],
    ['no numbers', usageChunk(null, {})],
    ['numbers beyond numbers', usageChunk(1e308, 1e308)],
  ])(
    'the caller of a node that claims %s is shown figures that are possible',
    async (name, usage) => {
      const model = `liar ${name}`.replaceAll(' ', '-')
      await stage.connect({ model, answer: answerChunks(textChunk('hello'), finishChunk(), usage) })
      const reply = await fetch(`${stage.gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${stage.gateway.key}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify({ model, messages: [{ role: 'user', content: 'hello' }] }),
      })
      const { usage: shown } = (await reply.json()) as { usage: Record<string, number> }
      const { prompt_tokens: prompt = Number.NaN, completion_tokens: completion = Number.NaN } =
        shown
      expect(Number.isInteger(prompt) && prompt >= 0 && prompt < 20_000).toBe(true)
      expect(Number.isInteger(completion) && completion >= 0 && completion < 100).toBe(true)
      expect(shown.total_tokens).toBe(prompt + completion)
    },
  )
})

describe('a node that', () => {
  it("a node that answers in the name of another node's run changes nothing in that run", async () => {
    const thief = await stage.connect({ model: 'thief' })
    const victim = await stage.connect({
      model: 'victim',
      answer: async ({ id }, node) => {
        node.sendRun(id, { chunk: textChunk('mine '), status: 1 })
        thief.sendRun(id, { chunk: textChunk('stolen '), status: 1 })
        thief.sendRun(id, { status: 2 })
        thief.sendRun(id, { error: { status_code: 500, message: 'x' }, status: 3 })
        await sleep(50)
        node.sendRun(id, { chunk: textChunk('only'), status: 1 })
        node.sendRun(id, { chunk: finishChunk(), status: 1 })
        node.sendRun(id, { status: 2 })
      },
    })
    for (const isStream of [false, true])
      expect(await call('victim', isStream)).toEqual({ status: 200, code: null, text: 'mine only' })
    thief.socket.terminate()
    victim.socket.terminate()
  })

  it('a node that dials in under the id of another node does not take its place', async () => {
    const nodeId = await stage.register(['taken'])
    const first = await stage.connect({ model: 'taken', nodeId, answer: answerWith('first') })
    const second = await stage.connect({ model: 'taken', nodeId, answer: answerWith('second') })
    expect((await second.closed).code).toBe(1008)
    expect(await call('taken', false)).toMatchObject({ text: 'first' })
    first.socket.terminate()
  })
})

it('the gateway holds nothing after hostile nodes, and the honest node is still there', async () => {
  expect(honest.socket.readyState).toBe(honest.socket.OPEN)
  expect(await call('honest', true)).toEqual({ status: 200, code: null, text: HONEST_TEXT })
  await expect
    .poll(() => stage.nodes.status(), { timeout: 30_000 })
    .toMatchObject({ slotsInUse: 0, runs: 0, queued: 0, probes: 0, handshakes: 0, writes: 0 })
})
