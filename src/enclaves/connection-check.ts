import type { Socket } from 'node:net'
import type { buildConnector } from 'undici'
import { ENCLAVE_PATHS } from '#enclave/protocol/enclave-api.ts'
import { asError } from '../api/errors.ts'
import { EnclaveError, enclaveErrorOf } from './enclave-errors.ts'
import { parseFault, parseIdentity } from './enclave-replies.ts'

/** How long a new connection waits for the enclave's identity. */
type Patience = {
  /**
   * Maximum time without an answer on any connection. A busy enclave still answers some
   * connections.
   */
  readonly silenceMaxMs: number
  /** Limit for one connection, even if other connections get answers. */
  readonly timeoutMs: number
}

const PATIENCE: Patience = { silenceMaxMs: 2_000, timeoutMs: 10_000 }

/** Maximum size of an identity with its headers, on a new connection. */
export const CONNECTION_REPLY_BYTES_MAX = 1024 * 1024

/**
 * Asks for the identity on each new connection, and returns the connection only if the notary is
 * the expected one, both when the connection begins and when the answer arrives. So a call that
 * opens a connection goes to the enclave that was chosen, even if the next enclave listens at the
 * socket by then. Fails with EnclaveError before any call is sent. Does NOT check the identity
 * itself: any process behind the socket could claim another identity.
 */
export function checkedConnector({
  connect,
  expectedNotary,
  patience = PATIENCE,
}: {
  readonly connect: buildConnector.connector
  /** The notary of the enclave that may get calls now. Null: none. */
  readonly expectedNotary: () => string | null
  readonly patience?: Patience
}): buildConnector.connector {
  /** When an identity was last received on any connection. */
  let answeredAtMs = Number.NEGATIVE_INFINITY

  async function check(socket: Socket, expected: string | null): Promise<void> {
    const question = `GET ${ENCLAVE_PATHS.identity} HTTP/1.1\r\nhost: enclave\r\n\r\n`
    const reply = await askOnce(socket, question, (late) =>
      onSilence({ ...patience, answeredAtMs: () => answeredAtMs }, late),
    )
    answeredAtMs = performance.now()
    const value: unknown = JSON.parse(reply.body)
    if (reply.status !== 200)
      throw new EnclaveError('refused', 'the enclave refused to say who it is', parseFault(value))
    const { notary } = parseIdentity(value)
    if (notary !== expected || notary !== expectedNotary())
      throw new EnclaveError(
        'unavailable',
        'the enclave that answers at the socket is not the enclave that was checked',
      )
  }

  return (options, callback) => {
    const expected = expectedNotary()
    connect(options, (...[error, socket]) => {
      if (error !== null) {
        callback(error, null)
        return
      }
      check(socket, expected).then(
        () => callback(null, socket),
        (fault: unknown) => {
          socket.on('error', () => undefined).destroy()
          callback(unsent(fault), null)
        },
      )
    })
  }
}

type RawReply = { readonly status: number; readonly body: string }

/**
 * Reads exactly the reply, and leaves no listeners. `watch` calls `late` for a reply that takes too
 * long, and returns a function that ends the watch.
 */
function askOnce(
  socket: Socket,
  request: string,
  watch: (late: () => void) => () => void,
): Promise<RawReply> {
  const { promise, resolve, reject } = Promise.withResolvers<RawReply>()
  let received = Buffer.alloc(0)
  const read = () => {
    for (let part = socket.read(); part !== null; part = socket.read())
      received = Buffer.concat([received, part])
    try {
      const reply = parseRawReply(received)
      if (reply !== null) resolve(reply)
    } catch (error) {
      reject(error)
    }
  }
  const fail = (error: Error) => reject(error)
  const end = () => reject(new EnclaveError('unavailable', 'the enclave closed a new connection'))
  const late = () =>
    reject(new EnclaveError('timeout', 'the enclave did not say in time who it is'))
  const stopWatch = watch(late)
  socket.on('readable', read).on('error', fail).on('close', end)
  socket.write(request)
  return promise.finally(() => {
    stopWatch()
    socket.off('readable', read).off('error', fail).off('close', end)
  })
}

/**
 * Calls `late` if a request that begins now waits too long. Returns a function that cancels this.
 */
function onSilence(
  {
    silenceMaxMs,
    timeoutMs,
    answeredAtMs,
  }: Patience & {
    /** When the enclave last answered on any connection. */
    readonly answeredAtMs: () => number
  },
  late: () => void,
): () => void {
  const askedAtMs = performance.now()
  const leftMs = () => {
    const silentAtMs = Math.max(askedAtMs, answeredAtMs()) + silenceMaxMs
    return Math.min(silentAtMs, askedAtMs + timeoutMs) - performance.now()
  }
  let timer = setTimeout(look, leftMs())
  let reading: NodeJS.Immediate | undefined

  // After a pause of this process, answers may wait. They are read before `late` is called.
  function look(): void {
    reading = setImmediate(() => {
      const nextMs = leftMs()
      if (nextMs <= 0) late()
      else timer = setTimeout(look, nextMs)
    })
  }

  return () => {
    clearTimeout(timer)
    clearImmediate(reading)
  }
}

const HEADERS_END = '\r\n\r\n'

/** Null while the reply is incomplete. Throws EnclaveError `protocol` and `reply_too_large`. */
function parseRawReply(received: Buffer): RawReply | null {
  if (received.length > CONNECTION_REPLY_BYTES_MAX)
    throw new EnclaveError('reply_too_large', 'the enclave answered more than the limit')
  const end = received.indexOf(HEADERS_END)
  if (end < 0) return null
  const headers = received.toString('latin1', 0, end)
  const [, status] = /^HTTP\/1\.1 (\d{3})/.exec(headers) ?? []
  const [, length] = /\r\ncontent-length: *(\d{1,9})(\r\n|$)/i.exec(headers) ?? []
  if (status === undefined || length === undefined)
    throw new EnclaveError(
      'protocol',
      'the enclave answered a new connection with something else than HTTP',
    )
  const from = end + HEADERS_END.length
  const body = received.subarray(from)
  if (body.length > Number(length))
    throw new EnclaveError(
      'protocol',
      'the enclave answered a new connection with more than was asked',
    )
  if (body.length < Number(length)) return null
  return { status: Number(status), body: body.toString('utf8') }
}

/** Sets `wasSent` to false, because a new connection has sent no byte of a call. */
function unsent(fault: unknown): Error {
  const error =
    fault instanceof SyntaxError
      ? new EnclaveError('protocol', 'the enclave answered what is not JSON')
      : enclaveErrorOf(fault)
  if (!(error instanceof EnclaveError)) return asError(error)
  return new EnclaveError(error.code, error.message, error.fault, { wasSent: false })
}
