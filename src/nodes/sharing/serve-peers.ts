import { z } from 'zod'
import { FormatError } from '#attestation/errors.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { Bus } from '../../bus/bus.ts'
import type { Channel } from '../../bus/channel.ts'
import { openScope } from '../../observability/call-scope.ts'
import { pause } from '../../runtime/loop.ts'
import type { AnswerReader } from '../runs/chat-run.ts'
import type { Dispatcher, ImageDispatcher } from '../runs/dispatch.ts'
import { DispatchError } from '../runs/dispatch-error.ts'
import { createEventReader } from '../runs/read-event.ts'
import { encodeFault, peerCall, readMessage, readSharedRequest, writeMessage } from './messages.ts'

type PeerCall = z.output<typeof peerCall>

/** How long the gateway that sent the call may take to judge the images. */
const VERDICT_MS = 60_000

const imageQuestion = z.object({ prompt: z.string(), n: z.int(), size: z.string() })
const verdict = z.object({ fault: z.string().nullable() })

/** Serves calls of other gateways with this gateway's nodes. `running` counts these calls. */
export function servePeers(
  bus: Pick<Bus, 'serve'>,
  {
    dispatcher,
    images,
    judge,
  }: {
    readonly dispatcher: Pick<Dispatcher, 'dispatch'>
    readonly images: Pick<ImageDispatcher, 'dispatch'>
    /** Checks an answer to this request. The other gateway gets the node's chunks unchanged. */
    readonly judge: (request: JsonObject) => Pick<AnswerReader, 'push' | 'finish'>
  },
): { running(): number } {
  let running = 0
  const serve = (
    service: 'chat' | 'images',
    run: (channel: Channel, call: PeerCall) => Promise<void>,
  ) =>
    bus.serve(service, async (channel, header) => {
      const call = peerCall.parse(header)
      running++
      try {
        await openScope(call.traceparent, () => answering(channel, () => run(channel, call))).result
      } finally {
        running--
      }
    })

  serve('chat', async (channel, { model, account_id: accountId, dialect }) => {
    const messages = channel.messages[Symbol.asyncIterator]()
    const request = readSharedRequest(await next(messages))
    const answer = await dispatcher.dispatch({
      model,
      request,
      accountId,
      signal: channel.signal,
      isPeers: true,
      dialect,
      openReader: () => (dialect === null ? asSent(judge(request)) : createEventReader(dialect)),
    })
    await channel.send(writeMessage({ node_id: answer.nodeId }))
    for await (const batch of answer.batches) await channel.send(writeMessage(batch))
    await channel.end()
    // Waits until the other gateway has ended or aborted the channel.
    await messages.next()
  })
  serve('images', async (channel, { model, account_id: accountId }) => {
    const messages = channel.messages[Symbol.asyncIterator]()
    const question = imageQuestion.parse(readMessage(await next(messages)))
    const image = Buffer.from(await next(messages)).toString()
    await images.dispatch({
      model,
      accountId,
      signal: channel.signal,
      isPeers: true,
      request: { ...question, image: image === '' ? null : image },
      async read(made) {
        await channel.send(writeMessage({ images: made.length }))
        for (const one of made) await channel.send(Buffer.from(one))
        const { fault } = verdict.parse(readMessage(await inTime(next(messages))))
        if (fault !== null) throw new FormatError('other', fault)
      },
    })
    await channel.end()
    await messages.next()
  })
  return { running: () => running }
}

/** Returns a reader that checks chunks with `judge` and returns them unchanged. */
function asSent(judge: Pick<AnswerReader, 'push' | 'finish'>): AnswerReader {
  return {
    push(chunk) {
      judge.push(chunk)
      return [chunk]
    },
    finish: () => judge.finish(),
  }
}

async function answering(channel: Channel, run: () => Promise<void>): Promise<void> {
  try {
    await run()
  } catch (error) {
    if (!(error instanceof DispatchError) || channel.signal.aborted) throw error
    channel.abort(encodeFault(error))
  }
}

async function next(messages: AsyncIterator<Uint8Array>): Promise<Uint8Array> {
  const { done, value } = await messages.next()
  if (done) throw new Error('expected a message of the gateway that asked')
  return value
}

async function inTime(asked: Promise<Uint8Array>): Promise<Uint8Array> {
  const isOver = new AbortController()
  try {
    const answer = await Promise.race([asked, pause(VERDICT_MS, isOver.signal)])
    if (answer === undefined) throw new Error('expected a verdict on the images in time')
    return answer
  } finally {
    isOver.abort()
  }
}
