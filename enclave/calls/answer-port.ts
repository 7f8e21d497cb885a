import type { ServerResponse } from 'node:http'
import type { JsonObject } from '#attestation/json/value.ts'
import type { CallFault } from '../call-fault.ts'
import { sendJson } from '../http-messages.ts'
import type { Sealed } from '../log/seal.ts'
import { type EnclaveFault, STREAM_EVENTS } from '../protocol/enclave-api.ts'
import { openSink, type StreamSink } from './stream-sink.ts'

/** The receiver of a completion call's answer. */
export type AnswerPort = {
  isGone(): boolean
  /** Calls `listener` when the receiver is gone. Returns a function that removes the listener. */
  onGone(listener: () => void): () => void
  /** Opens a stream. Until the first write, a fault can still set the status. */
  openStream(options: {
    readonly cancel: AbortController
    readonly drainTimeoutMs: number
  }): StreamSink
  endWhole(sealed: Sealed, response: JsonObject): Promise<void>
  /** `fault` is the reason for an incomplete stream, otherwise null. */
  endStream(
    sealed: Sealed,
    stream: { readonly fault: CallFault | null; readonly response: JsonObject },
  ): Promise<void>
}

/** For an unencrypted call: the gateway reads the answer. */
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

/** Returns a function that removes the listener. */
export function onClose(response: ServerResponse, listener: () => void): () => void {
  response.once('close', listener)
  return () => {
    response.off('close', listener)
  }
}

/** Answers a failed call: with an error status, or with an event in the stream. */
export function sendFault(response: ServerResponse, fault: EnclaveFault): void {
  if (response.headersSent) response.end(encodeEvent(STREAM_EVENTS.fault, fault))
  else sendJson(response, fault.status, fault)
}

function encodeEvent(event: string, data: object): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}
