import { decodeCbor } from '#attestation/nitro/cbor.ts'
import { encodeMap, encodeOptionalBytes, encodeText } from '../protocol/cbor.ts'
import {
  type AttestationInput,
  NSM_REQUEST_BYTES_MAX,
  NSM_WIRE_ERRORS,
  type NsmRequest,
  type NsmResponse,
  type NsmWireError,
} from '../protocol/nsm-wire.ts'

/**
 * The Nitro security module as the enclave uses it: the device of a Nitro enclave (device-nsm.ts),
 * or a software module behind a socket in development (socket-nsm.ts). Calls run one at a time, in
 * order.
 */
export type Nsm = {
  readonly kind: 'software' | 'device'
  /**
   * Makes a new attestation document (COSE_Sign1 bytes) over the three values. Null leaves a value
   * out. The document is valid until its leaf certificate expires (at most 3 h).
   */
  attest(input: AttestationInput): Promise<Uint8Array>
  /** `length` is 0 to RANDOM_BYTES_MAX. */
  random(length: number): Promise<Uint8Array>
  /** Closes the module. Later calls fail with code Closed. */
  close(): void
}

/** Limit of one call of random(), bytes. Each answer from the module has 256 bytes. */
const RANDOM_BYTES_MAX = 65_536

/** The security module refused or failed. `code` is stable. The message is for people. */
export class NsmError extends Error {
  override readonly name = 'NsmError'
  readonly code: NsmErrorCode

  constructor(code: NsmErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/** Codes of the module's errors, and of faults before a request reaches the module. */
type NsmErrorCode =
  | NsmWireError
  | 'Closed' //         the Nsm was closed
  | 'Unavailable' // the module is missing, or access is denied

/** Sends one encoded request to a module and returns its encoded answer. */
export type NsmTransport = {
  exchange(request: Uint8Array): Promise<Uint8Array>
  close(): void
}

/**
 * Creates an Nsm that uses `transport`. It sends one request at a time, in the order of the calls,
 * because the device accepts only one. The module's errors become NsmError with the module's code.
 * An answer that does not belong to the request becomes InvalidResponse.
 */
export function createNsmClient(kind: Nsm['kind'], transport: NsmTransport): Nsm {
  let tail: Promise<unknown> = Promise.resolve()
  let closed = false

  const send = async (request: NsmRequest): Promise<NsmResponse> => {
    if (closed) throw new NsmError('Closed', 'the security module was closed')
    const bytes = encodeRequest(request)
    if (bytes.length > NSM_REQUEST_BYTES_MAX)
      throw new NsmError(
        'InputTooLarge',
        `request of ${bytes.length} bytes, at most ${NSM_REQUEST_BYTES_MAX} go`,
      )
    return decodeResponse(await transport.exchange(bytes))
  }
  const call = <Kind extends NsmRequest['kind']>(request: NsmRequest & { readonly kind: Kind }) => {
    const answer = tail.then(() => send(request))
    tail = answer.catch(() => undefined)
    return answer.then((response) => expectKind(response, request.kind))
  }

  return {
    kind,
    attest: async (input) => (await call({ kind: 'Attestation', ...input })).document,
    random: async (length) => {
      if (!Number.isInteger(length) || length < 0 || length > RANDOM_BYTES_MAX)
        throw new NsmError(
          'InvalidArgument',
          `expected 0..${RANDOM_BYTES_MAX} random bytes, got ${length}`,
        )
      return collectRandom(length, async () => (await call({ kind: 'GetRandom' })).random)
    },
    close: () => {
      if (closed) return
      closed = true
      // The transport closes after the running call. Queued calls fail as Closed.
      tail = tail.then(() => transport.close()).catch(() => undefined)
    },
  }
}

/** Encodes the request. The members have the same order as in AWS's client. */
export function encodeRequest(request: NsmRequest): Uint8Array {
  if (request.kind === 'GetRandom') return encodeText(request.kind)
  const { userData, nonce, publicKey } = request
  const members = encodeMap([
    [encodeText('user_data'), encodeOptionalBytes(userData)],
    [encodeText('nonce'), encodeOptionalBytes(nonce)],
    [encodeText('public_key'), encodeOptionalBytes(publicKey)],
  ])
  return encodeMap([[encodeText(request.kind), members]])
}

/** Parses a response. The members may have any order. Throws NsmError InvalidResponse. */
export function decodeResponse(bytes: Uint8Array): NsmResponse {
  const value = decodeItem(bytes)
  const entry = value instanceof Map && value.size === 1 ? [...value][0] : undefined
  const [kind, members]: readonly unknown[] = entry ?? [value]
  switch (kind) {
    case 'GetRandom':
      return { kind, random: bytesOf(kind, members, 'random') }
    case 'Attestation':
      return { kind, document: bytesOf(kind, members, 'document') }
    case 'Error':
      return { kind, code: NSM_WIRE_ERRORS.find((code) => code === members) ?? 'InternalError' }
    default:
      throw new NsmError(
        'InvalidResponse',
        typeof kind === 'string'
          ? `the module answered ${JSON.stringify(kind.slice(0, 32))}`
          : 'expected a name, or a map of one name to its members',
      )
  }
}

function decodeItem(bytes: Uint8Array): unknown {
  try {
    const { value, end } = decodeCbor(bytes, { indefinite: 'all' })
    if (end === bytes.length) return value
  } catch (cause) {
    throw new NsmError('InvalidResponse', 'expected one CBOR item', { cause })
  }
  throw new NsmError('InvalidResponse', 'expected nothing after the CBOR item')
}

function bytesOf(kind: string, members: unknown, name: string): Uint8Array {
  const value: unknown = members instanceof Map ? members.get(name) : undefined
  if (value instanceof Uint8Array) return new Uint8Array(value)
  throw new NsmError('InvalidResponse', `${kind}: expected a byte string in ${name}`)
}

function expectKind<Kind extends NsmRequest['kind']>(
  response: NsmResponse,
  kind: Kind,
): NsmResponse & { readonly kind: Kind } {
  if (response.kind === 'Error')
    throw new NsmError(response.code, `the security module refused ${kind}`)
  if (isKind(response, kind)) return response
  throw new NsmError(
    'InvalidResponse',
    `asked ${kind}, the security module answered ${response.kind}`,
  )
}

function isKind<Kind extends NsmRequest['kind']>(
  response: NsmResponse,
  kind: Kind,
): response is NsmResponse & { readonly kind: Kind } {
  return response.kind === kind
}

async function collectRandom(length: number, next: () => Promise<Uint8Array>): Promise<Uint8Array> {
  const result = new Uint8Array(length)
  let filled = 0
  while (filled < length) {
    const part = await next()
    if (part.length === 0) throw new NsmError('InvalidResponse', 'GetRandom answered with no bytes')
    const taken = part.subarray(0, length - filled)
    result.set(taken, filled)
    filled += taken.length
  }
  return result
}
