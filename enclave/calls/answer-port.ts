import type { ServerResponse } from 'node:http'
import type { JsonObject } from '../../attestation/json/value.ts'
import type { CallFault } from '../call-fault.ts'
import { sendJson } from '../http-messages.ts'
import type { Sealed } from '../log/seal.ts'
import { type EnclaveFault, STREAM_EVENTS } from '../protocol/messages.ts'
import { openSink, type StreamSink } from './stream-sink.ts'

/** Where a completion call's answer goes. */
export type AnswerPort = {
  /** Whether the receiver of the answer has gone. */
  isGone(): boolean
  /** Calls `listener` when that happens; gives what takes it away again. */
  onGone(listener: () => void): () => void
  /** Before the first write, faults can still have a status. */
  openStream(options: {
    readonly cancel: AbortController
    readonly drainTimeoutMs: number
  }): StreamSink
  /** Ends the answer to a sealed call that is not a stream. */
  endWhole(sealed: Sealed, response: JsonObject): Promise<void>
  /** Ends a stream that is sealed; `fault`: why it is not whole, if it is not. */
  endStream(
    sealed: Sealed,
    stream: { readonly fault: CallFault | null; readonly response: JsonObject },
  ): Promise<void>
}

/** The port of a call that is not encrypted: the gateway reads what messages.ts has. */
export function plainPort(response: ServerResponse): AnswerPort {
  return {
    isGone: () => response.destroyed,
    onGone: (listener) => onClose(response, listener),
    openStream: (options) => openSink(response, options),
    endWhole: async ({ notice }) => sendJson(response, 200, notice),
    endStream: async ({ notice }, { fault }) => {
      const event = fault === null ? '' : encodeEvent(STREAM_EVENTS.fault, fault.fault)
      response.end(event + encodeEvent(STREAM_EVENTS.sealed, notice))
    },
  }
}

/** Calls `listener` when the connection closes; gives what takes it away again. */
export function onClose(response: ServerResponse, listener: () => void): () => void {
  response.once('close', listener)
  return () => {
    response.off('close', listener)
  }
}

/** Answers a call that failed: with a status, or within its stream. */
export function sendFault(response: ServerResponse, fault: EnclaveFault): void {
  if (response.headersSent) response.end(encodeEvent(STREAM_EVENTS.fault, fault))
  else sendJson(response, fault.status, fault)
}

/** Text of a server-sent event with a name. */
export function encodeEvent(event: string, data: object): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}
