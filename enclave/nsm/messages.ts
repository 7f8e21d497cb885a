import { Decoder } from 'cbor-x'
import {
  type CborEntry,
  encodeArray,
  encodeBoolean,
  encodeBytes,
  encodeMap,
  encodeOptionalBytes,
  encodeText,
  encodeUnsigned,
} from './cbor.ts'
import {
  type AttestationInput,
  NSM_WIRE_ERRORS,
  type NsmDescription,
  NsmError,
  type NsmWireError,
  type PcrState,
} from './nsm.ts'

/** What a client asks of a module (aws-nitro-enclaves-nsm-api, Request). `kind` is the name on the wire. */
export type NsmRequest =
  | { readonly kind: 'DescribeNSM' }
  | { readonly kind: 'GetRandom' }
  | { readonly kind: 'DescribePCR'; readonly index: number }
  | { readonly kind: 'ExtendPCR'; readonly index: number; readonly data: Uint8Array }
  | { readonly kind: 'LockPCR'; readonly index: number }
  | { readonly kind: 'LockPCRs'; readonly range: number }
  | ({ readonly kind: 'Attestation' } & AttestationInput)

/** What a module answers (aws-nitro-enclaves-nsm-api, Response). */
export type NsmResponse =
  | ({ readonly kind: 'DescribeNSM' } & NsmDescription)
  | { readonly kind: 'GetRandom'; readonly random: Uint8Array }
  | ({ readonly kind: 'DescribePCR' } & PcrState)
  | { readonly kind: 'ExtendPCR'; readonly value: Uint8Array }
  | { readonly kind: 'LockPCR' }
  | { readonly kind: 'LockPCRs' }
  | { readonly kind: 'Attestation'; readonly document: Uint8Array }
  | { readonly kind: 'Error'; readonly code: NsmWireError }

/** Gives the request's bytes on the wire, member order as AWS's client writes it. */
export function encodeRequest(request: NsmRequest): Uint8Array {
  switch (request.kind) {
    case 'DescribeNSM':
    case 'GetRandom':
      return encodeText(request.kind)
    case 'DescribePCR':
    case 'LockPCR':
      return encodeCall(request.kind, [member('index', encodeIndex(request.index))])
    case 'ExtendPCR':
      return encodeCall(request.kind, [
        member('index', encodeIndex(request.index)),
        member('data', encodeBytes(request.data)),
      ])
    case 'LockPCRs':
      return encodeCall(request.kind, [member('range', encodeIndex(request.range))])
    case 'Attestation':
      return encodeCall(request.kind, [
        member('user_data', encodeOptionalBytes(request.userData)),
        member('nonce', encodeOptionalBytes(request.nonce)),
        member('public_key', encodeOptionalBytes(request.publicKey)),
      ])
  }
}

/** Reads a request. Throws NsmError InvalidOperation (no such call) or InvalidArgument (its members are wrong). */
export function decodeRequest(bytes: Uint8Array): NsmRequest {
  const { kind, members } = decodeCall(bytes, 'InvalidOperation')
  const read = createReader(kind, members, 'InvalidArgument')
  switch (kind) {
    case 'DescribeNSM':
    case 'GetRandom':
      return { kind }
    case 'DescribePCR':
    case 'LockPCR':
      return { kind, index: read.unsigned('index') }
    case 'ExtendPCR':
      return { kind, index: read.unsigned('index'), data: read.bytes('data') }
    case 'LockPCRs':
      return { kind, range: read.unsigned('range') }
    case 'Attestation':
      return {
        kind,
        userData: read.optionalBytes('user_data'),
        nonce: read.optionalBytes('nonce'),
        publicKey: read.optionalBytes('public_key'),
      }
    default:
      throw new NsmError('InvalidOperation', `the module knows no call ${JSON.stringify(kind.slice(0, 32))}`)
  }
}

/** Gives the response's bytes on the wire. */
export function encodeResponse(response: NsmResponse): Uint8Array {
  switch (response.kind) {
    case 'LockPCR':
    case 'LockPCRs':
      return encodeText(response.kind)
    case 'DescribeNSM':
      return encodeCall(response.kind, [
        member('version_major', encodeUnsigned(response.versionMajor)),
        member('version_minor', encodeUnsigned(response.versionMinor)),
        member('version_patch', encodeUnsigned(response.versionPatch)),
        member('module_id', encodeText(response.moduleId)),
        member('max_pcrs', encodeUnsigned(response.pcrCount)),
        member('locked_pcrs', encodeArray(response.lockedPcrs.map(encodeUnsigned))),
        member('digest', encodeText(response.digest)),
      ])
    case 'GetRandom':
      return encodeCall(response.kind, [member('random', encodeBytes(response.random))])
    case 'DescribePCR':
      return encodeCall(response.kind, [
        member('lock', encodeBoolean(response.locked)),
        member('data', encodeBytes(response.value)),
      ])
    case 'ExtendPCR':
      return encodeCall(response.kind, [member('data', encodeBytes(response.value))])
    case 'Attestation':
      return encodeCall(response.kind, [member('document', encodeBytes(response.document))])
    case 'Error':
      return encodeMap([member('Error', encodeText(response.code))])
  }
}

/** Reads a response; member order does not matter. Throws NsmError InvalidResponse. */
export function decodeResponse(bytes: Uint8Array): NsmResponse {
  const { kind, members } = decodeCall(bytes, 'InvalidResponse')
  const read = createReader(kind, members, 'InvalidResponse')
  switch (kind) {
    case 'LockPCR':
    case 'LockPCRs':
      return { kind }
    case 'DescribeNSM':
      return {
        kind,
        versionMajor: read.unsigned('version_major'),
        versionMinor: read.unsigned('version_minor'),
        versionPatch: read.unsigned('version_patch'),
        moduleId: read.text('module_id'),
        pcrCount: read.unsigned('max_pcrs'),
        lockedPcrs: read.unsignedList('locked_pcrs'),
        digest: read.text('digest'),
      }
    case 'GetRandom':
      return { kind, random: read.bytes('random') }
    case 'DescribePCR':
      return { kind, locked: read.boolean('lock'), value: read.bytes('data') }
    case 'ExtendPCR':
      return { kind, value: read.bytes('data') }
    case 'Attestation':
      return { kind, document: read.bytes('document') }
    case 'Error':
      return { kind, code: NSM_WIRE_ERRORS.find((code) => code === members) ?? 'InternalError' }
    default:
      throw new NsmError('InvalidResponse', `the module answered ${JSON.stringify(kind.slice(0, 32))}`)
  }
}

/** Widest integer of the protocol (Rust u16). */
const UNSIGNED_MAX = 0xffff

const decoder = new Decoder({ useRecords: false, mapsAsObjects: false })

function member(name: string, value: Uint8Array): CborEntry {
  return [encodeText(name), value]
}

function encodeCall(kind: string, members: readonly CborEntry[]): Uint8Array {
  return encodeMap([member(kind, encodeMap(members))])
}

function encodeIndex(value: number): Uint8Array {
  if (!isUnsigned(value))
    throw new NsmError('InvalidIndex', `expected an integer 0..${UNSIGNED_MAX}, got ${value}`)
  return encodeUnsigned(value)
}

function isUnsigned(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= UNSIGNED_MAX
}

/** A call is a bare name, or a map of one name to its members (for Error: to the error's name). */
function decodeCall(bytes: Uint8Array, fault: NsmWireError): { kind: string; members: unknown } {
  let value: unknown
  try {
    value = decoder.decode(bytes)
  } catch (error) {
    throw new NsmError(fault, 'expected one CBOR item', { cause: error })
  }
  if (typeof value === 'string') return { kind: value, members: null }
  if (value instanceof Map && value.size === 1) {
    const [entry] = value
    if (entry !== undefined && typeof entry[0] === 'string') return { kind: entry[0], members: entry[1] }
  }
  throw new NsmError(fault, 'expected a name, or a map of one name to its members')
}

function createReader(kind: string, members: unknown, fault: NsmWireError) {
  const get = (name: string): unknown => (members instanceof Map ? members.get(name) : undefined)
  const refuse = (name: string, expected: string): NsmError =>
    new NsmError(fault, `${kind}: expected ${expected} in ${name}`)

  const bytes = (name: string): Uint8Array => {
    const value = get(name)
    if (value instanceof Uint8Array) return new Uint8Array(value)
    throw refuse(name, 'a byte string')
  }
  return {
    bytes,
    optionalBytes: (name: string): Uint8Array | null => {
      if (!(members instanceof Map)) throw refuse(name, 'a member')
      return (get(name) ?? null) === null ? null : bytes(name)
    },
    unsigned: (name: string): number => {
      const value = get(name)
      if (isUnsigned(value)) return value
      throw refuse(name, `an integer 0..${UNSIGNED_MAX}`)
    },
    unsignedList: (name: string): readonly number[] => {
      const value = get(name)
      if (Array.isArray(value) && value.every(isUnsigned)) return value
      throw refuse(name, `an array of integers 0..${UNSIGNED_MAX}`)
    },
    text: (name: string): string => {
      const value = get(name)
      if (typeof value === 'string') return value
      throw refuse(name, 'a text string')
    },
    boolean: (name: string): boolean => {
      const value = get(name)
      if (typeof value === 'boolean') return value
      throw refuse(name, 'true or false')
    },
  }
}
