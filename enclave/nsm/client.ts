import { decodeResponse, encodeRequest, type NsmRequest, type NsmResponse } from './messages.ts'
import { NSM_REQUEST_BYTES_MAX, type Nsm, NsmError, RANDOM_BYTES_MAX } from './nsm.ts'

/** Carries one encoded request to a module and brings its encoded answer back. */
export type NsmTransport = {
  exchange(request: Uint8Array): Promise<Uint8Array>
  close(): void
}

/**
 * Gives the Nsm that talks through `transport`: one request at a time, in the order of the calls, because the
 * device takes no more. Errors of the module arrive as NsmError with the module's code; an answer that does not
 * belong to the request as InvalidResponse.
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
        throw new NsmError('InvalidArgument', `expected 0..${RANDOM_BYTES_MAX} random bytes, got ${length}`)
      return collectRandom(length, async () => (await call({ kind: 'GetRandom' })).random)
    },
    describe: async () => {
      const { kind: _, ...description } = await call({ kind: 'DescribeNSM' })
      return description
    },
    describePcr: async (index) => {
      const { locked, value } = await call({ kind: 'DescribePCR', index })
      return { locked, value }
    },
    extendPcr: async ({ index, data }) => (await call({ kind: 'ExtendPCR', index, data })).value,
    lockPcr: async (index) => {
      await call({ kind: 'LockPCR', index })
    },
    lockPcrs: async (range) => {
      await call({ kind: 'LockPCRs', range })
    },
    close: () => {
      if (closed) return
      closed = true
      // A call under way still uses the transport; those queued behind it fail as Closed.
      tail = tail.then(() => transport.close()).catch(() => undefined)
    },
  }
}

function expectKind<Kind extends NsmRequest['kind']>(
  response: NsmResponse,
  kind: Kind,
): NsmResponse & { readonly kind: Kind } {
  if (response.kind === 'Error') throw new NsmError(response.code, `the security module refused ${kind}`)
  if (isKind(response, kind)) return response
  throw new NsmError('InvalidResponse', `asked ${kind}, the security module answered ${response.kind}`)
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
