import { expect, it } from 'vitest'
import { createChannel, type OpenChannel } from '#src/bus/channel.ts'
import type { CompletionAnswer } from '#src/enclaves/enclave-client.ts'
import type { EnclaveEvent } from '#src/enclaves/enclave-replies.ts'
import {
  passCompletion,
  passedHeader,
  servePassedCompletion,
} from '#src/enclaves/peer-completions.ts'

const NOTICE = { notary: '0xa', index: 3, outcome: 'complete' } as const
const BODY = Buffer.from('{"model":"demo/echo"}')
const OPERATORS = 'the credential of the operator'

/** Two ends of a channel in memory. */
function openChannels(): readonly [OpenChannel, OpenChannel] {
  const open = (peer: string, other: () => OpenChannel) =>
    createChannel({
      peer,
      publish: (frame) => queueMicrotask(() => other().receive(frame)),
      onOver: () => undefined,
    })
  const one: OpenChannel = open('two', () => two)
  const two: OpenChannel = open('one', () => one)
  return [one, two]
}

/** Passes a call to a gateway whose enclave answers so. Gives what that enclave got. */
async function pass(
  answer: CompletionAnswer,
  {
    isCallers = false,
    stored = async () => undefined,
    signal = new AbortController().signal,
  }: {
    readonly isCallers?: boolean
    readonly stored?: () => Promise<unknown>
    readonly signal?: AbortSignal
  } = {},
) {
  const [here, there] = openChannels()
  const given = { context: 'c', provider: 'demo', credential: 'mine', is_callers: isCallers }
  const header = passedHeader('demo/echo', '0xa', given)
  const got: unknown[] = []
  const serving = servePassedCompletion(there, JSON.parse(JSON.stringify(header)), {
    enclaves: {
      complete: async ({ callFor, ...wanted }, body) => {
        got.push({
          ...wanted,
          call: callFor(Object.create(null)),
          body: Buffer.from(body).toString(),
        })
        return answer
      },
    },
    credentials: () => new Map([['demo', OPERATORS]]),
    proofFor: stored as never,
  })
  serving.catch(() => undefined)
  return { header, got, answered: await passCompletion(here, BODY, signal) }
}

it('a passed call has no credential of the operator, and is made with that of the other gateway', async () => {
  const { header, got, answered } = await pass({ kind: 'sealed', notice: NOTICE })
  expect(header.call.credential).toBe(null)
  expect(got).toEqual([
    {
      model: 'demo/echo',
      dialect: 'chat',
      notary: '0xa',
      call: { context: 'c', provider: 'demo', credential: OPERATORS, is_callers: false },
      body: BODY.toString(),
    },
  ])
  expect(answered).toEqual({ kind: 'sealed', notice: NOTICE })
})

it('a passed call keeps its caller’s credential', async () => {
  const { got } = await pass({ kind: 'sealed', notice: NOTICE }, { isCallers: true })
  expect(got).toMatchObject([{ call: { credential: 'mine', is_callers: true } }])
})

it('a passed call gives a provider’s words without the credential of the operator', async () => {
  const fault = {
    status: 401,
    code: 'provider_refused',
    message: `no such key ${OPERATORS}`,
  } as const
  expect((await pass({ kind: 'fault', fault })).answered).toEqual({
    kind: 'fault',
    fault: { ...fault, message: 'no such key [credential]' },
  })
})

it('a passed stream gives its events unchanged and in order, and its notice once its record is stored', async () => {
  const events: readonly EnclaveEvent[] = [
    { kind: 'chunks', bytes: Buffer.from('data: {}\n\n') },
    { kind: 'last', chunk: '{}' },
    { kind: 'sealed', notice: NOTICE },
  ]
  const { promise, resolve } = Promise.withResolvers<undefined>()
  const stream = (async function* () {
    yield* events
  })()
  const { answered } = await pass({ kind: 'stream', events: stream }, { stored: () => promise })
  if (answered.kind !== 'stream') throw new Error('expected a stream')
  const read: EnclaveEvent[] = []
  for await (const event of answered.events) {
    read.push(event.kind === 'chunks' ? { ...event, bytes: Buffer.from(event.bytes) } : event)
    if (event.kind === 'last') setTimeout(resolve, 20, undefined)
    if (event.kind === 'sealed')
      await expect(Promise.race([promise, 'not stored'])).resolves.toBe(undefined)
  }
  expect(read).toEqual(events)
})

it('a passed call ends with the reason of its caller’s leaving', async () => {
  const leaving = new AbortController()
  const passed = pass(
    { kind: 'sealed', notice: NOTICE },
    { stored: () => new Promise(() => undefined), signal: leaving.signal },
  )
  setTimeout(() => leaving.abort(new Error('the caller left')), 20)
  await expect(passed).rejects.toThrow('the caller left')
})
