import { once } from 'node:events'
import { setImmediate as turn } from 'node:timers/promises'
import { type RawData, WebSocket } from 'ws'

/** A chat frame as a node gets it. */
export type ChatFrame = {
  readonly id: string
  readonly model: string
  readonly chat_request: Readonly<Record<string, unknown>>
}

/** A control frame as a node gets it. */
export type ControlFrame = {
  readonly protocol: string
  readonly data: Readonly<Record<string, unknown>>
}

/** What a scripted node does with a call. Most scripts are made by the functions below. */
export type AnswerScript = (call: ChatFrame, node: ScriptedNode) => Promise<void> | void

export type ScriptedNodeOptions = {
  /** `http://host:port` of the gateway. */
  readonly url: string
  readonly key: string
  readonly nodeId: string
  readonly model: string
  readonly modelType?: string
  /** Further or other headers; null leaves one out. */
  readonly headers?: Readonly<Record<string, string | null>>
  /** What it does with calls; by default it answers `Hello from <node id>`. */
  readonly answer?: AnswerScript
  /**
   * An old client, before status frames: it sends no `status`, and no frame after the usage chunk.
   */
  readonly isOld?: boolean
  /** Whether it answers PING and health-check; true by default. */
  readonly answersControl?: boolean
}

/**
 * A node that follows the public client's protocol frame by frame (facts of the wire, not our
 * code): it dials with the four headers, offers permessage-deflate, answers pings, and streams
 * chunks, the usage chunk and status 2.
 */
export type ScriptedNode = {
  readonly socket: WebSocket
  /** Chat frames so far. */
  readonly calls: ChatFrame[]
  readonly controls: ControlFrame[]
  readonly isOld: boolean
  /** Resolves when the connection is over. */
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>
  /** Whether the gateway agreed to an extension. */
  readonly extensions: string
  send(frame: unknown): void
  /** Sends one frame of a run, the way this client's version does. */
  sendRun(
    id: string,
    frame: { readonly chunk?: unknown; readonly error?: unknown; readonly status: 1 | 2 | 3 },
  ): void
  close(code?: number): Promise<void>
}

/**
 * Dials, and resolves when the WebSocket is open (it may be closed right after). Rejects with
 * UpgradeRefused.
 */
export async function connectScriptedNode(options: ScriptedNodeOptions): Promise<ScriptedNode> {
  const {
    url,
    key,
    nodeId,
    model,
    modelType = 'LLM',
    isOld = false,
    answersControl = true,
  } = options
  const headers: Record<string, string | null> = {
    Authorization: `Bearer ${key}`,
    Model: model,
    'Model-Type': modelType,
    'Node-Id': nodeId,
    ...options.headers,
  }
  const sent = Object.entries(headers).filter(
    (entry): entry is [string, string] => entry[1] !== null,
  )
  const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/node/ws`, {
    headers: Object.fromEntries(sent),
    perMessageDeflate: true,
  })
  const calls: ChatFrame[] = []
  const controls: ControlFrame[] = []
  const closed = new Promise<{ readonly code: number; readonly reason: string }>((resolve) => {
    socket.once('close', (code, reason) => resolve({ code, reason: reason.toString() }))
  })
  const node: ScriptedNode = {
    socket,
    calls,
    controls,
    closed,
    isOld,
    get extensions() {
      return socket.extensions
    },
    send: (frame) => socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame)),
    sendRun(id, { chunk = null, error = null, status }) {
      if (isOld && status === 2) return
      node.send({ request_id: id, error, chunk, ...(isOld ? {} : { status }) })
    },
    async close(code = 1000) {
      socket.close(code)
      await closed
    },
  }
  const answer = options.answer ?? answerWith(`Hello from ${nodeId}`)
  socket.on('message', (data: RawData) => {
    const frame = JSON.parse(data.toString())
    if ('protocol' in frame) {
      controls.push(frame)
      if (answersControl) answerControl(frame, node)
    } else {
      calls.push(frame)
      void answer(frame, node)
    }
  })
  await opened(socket)
  return node
}

/** The gateway's answer over HTTP, in place of a WebSocket. */
export class UpgradeRefused extends Error {
  override readonly name = 'UpgradeRefused'
  readonly status: number
  readonly body: unknown

  constructor(status: number, body: unknown) {
    super(`refused with ${status}`)
    this.status = status
    this.body = body
  }
}

async function opened(socket: WebSocket): Promise<void> {
  const refused = new Promise<never>((_, reject) => {
    socket.once('unexpected-response', (_request, response) => {
      let text = ''
      response.on('data', (part) => {
        text += part
      })
      response.on('end', () => {
        reject(new UpgradeRefused(response.statusCode ?? 0, JSON.parse(text)))
        socket.terminate()
      })
    })
  })
  await Promise.race([once(socket, 'open'), refused])
  socket.on('error', () => {})
}

function answerControl({ protocol, data }: ControlFrame, node: ScriptedNode): void {
  const { protocol_version, node_id, nonce, message_type: type } = data
  const answer = { protocol_version, message_type: 2, node_id, nonce }
  if (protocol === 'ping-pong' && type === 1)
    node.send({ protocol, data: { ...answer, api_ping_time: [12, null] } })
  if (protocol === 'ping-pong' && type === 3) void node.close(1000)
  if (protocol === 'health-check')
    node.send({
      protocol,
      data: {
        ...answer,
        cpu_percent: 3.5,
        ram_percent: 40,
        disk_percent: 7,
        gpus: [{ gpu_percent: 90, vram_percent: 50, power_percent: 70 }],
      },
    })
}

/** A `chat.completion.chunk` with one piece of text. */
export function textChunk(text: string, more: Readonly<Record<string, unknown>> = {}): object {
  const choice = {
    index: 0,
    delta: { content: text },
    logprobs: null,
    finish_reason: null,
    ...more,
  }
  return { ...CHUNK, choices: [choice] }
}

/** The chunk with which a backend begins. */
export function roleChunk(): object {
  return {
    ...CHUNK,
    choices: [
      { index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
    ],
  }
}

/** The chunk that ends the choice. */
export function finishChunk(): object {
  return { ...CHUNK, choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }] }
}

/** The last chunk of a run with `include_usage`. */
export function usageChunk(promptTokens: unknown, completionTokens: unknown): object {
  const total = Number(promptTokens) + Number(completionTokens)
  const usage = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: total,
  }
  return { ...CHUNK, choices: [], usage }
}

const CHUNK = {
  id: 'chatcmpl-node',
  object: 'chat.completion.chunk',
  created: 1_700_000_000,
  model: 'backend',
}

/** Answers with this text, a chunk per word, as vLLM does: role, words, finish, usage, status 2. */
export function answerWith(text: string): AnswerScript {
  return async ({ id }, node) => {
    const words = text.split(/(?= )/)
    const chunks = [
      roleChunk(),
      ...words.map((word) => textChunk(word)),
      finishChunk(),
      usageChunk(9, words.length),
    ]
    for (const chunk of chunks) {
      if (node.socket.readyState !== WebSocket.OPEN) return
      node.sendRun(id, { chunk, status: 1 })
      await turn()
    }
    node.sendRun(id, { status: 2 })
  }
}

/** Reports that its backend failed. */
export function answerError(statusCode: number, message = 'the backend says no'): AnswerScript {
  return ({ id }, node) =>
    node.sendRun(id, { error: { status_code: statusCode, message }, status: 3 })
}

/** Stops sending after this many words. */
export function answerSilence(words = 0): AnswerScript {
  return ({ id }, node) => {
    for (let word = 0; word < words; word++)
      node.sendRun(id, { chunk: textChunk(`word${word} `), status: 1 })
  }
}

/** One script for each call in turn; the last script for all further calls. */
export function inTurn(...scripts: readonly AnswerScript[]): AnswerScript {
  let calls = 0
  return (call, node) => {
    const script = scripts[Math.min(calls++, scripts.length - 1)]
    return script?.(call, node)
  }
}
