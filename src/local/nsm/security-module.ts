import { createHash, randomBytes, sign } from 'node:crypto'
import { join } from 'node:path'
import { Decoder } from 'cbor-x'
import {
  encodeArray,
  encodeBytes,
  encodeIndefiniteMap,
  encodeMap,
  encodeOptionalBytes,
  encodeText,
  encodeUnsigned,
} from '#enclave/protocol/cbor.ts'
import {
  ATTESTATION_FIELD_BYTES_MAX,
  type AttestationInput,
  NSM_REQUEST_BYTES_MAX,
  type NsmRequest,
  type NsmResponse,
  type NsmWireError,
} from '#enclave/protocol/nsm-wire.ts'
import {
  createCertificateChain,
  type ModuleIdentity,
  moduleIdOf,
  type SigningChain,
} from './certificate-chain.ts'
import { openDevelopmentRoot } from './development-root.ts'
import { measureSource, type SourceMeasurements } from './measured-source.ts'

export type SecurityModule = {
  /** Never throws. For a fault, returns an Error answer, as the device does. */
  processRequest(request: Uint8Array): Uint8Array
}

/**
 * Boots a security module in software, as a new instance under the root in `rootFile`
 * (openDevelopmentRoot). Without `measurements`, PCR0 to 2 are measured over this project's own
 * source. `now` gives Unix milliseconds. Throws SoftwareNsmError. Does NOT protect anything: the
 * user who runs the process controls the key, the clock and the measurements.
 */
export async function bootSecurityModule(options: {
  readonly rootFile: string | null
  readonly measurements?: SourceMeasurements | null
  readonly now: () => number
}): Promise<SecurityModule> {
  const { rootFile, measurements, now } = options
  const runtime = [`node ${process.version}`, `platform ${process.platform}-${process.arch}`]
  const [root, measured] = await Promise.all([
    openDevelopmentRoot(rootFile, now()),
    measurements ?? measureSource({ root: PROJECT_ROOT, runtime }),
  ])
  const identity = makeIdentity(now())
  const chainAt = createCertificateChain(root, identity)
  return createSecurityModule({ identity, measurements: measured, chainAt, now })
}

const PROJECT_ROOT = join(import.meta.dirname, '../../..')

function makeIdentity(nowMs: number): ModuleIdentity {
  const startedAt = Buffer.alloc(8)
  startedAt.writeBigUInt64BE(BigInt(nowMs) << 16n)
  startedAt.set(randomBytes(2), 6)
  return { instanceId: `i-0${randomBytes(8).toString('hex')}`, enclaveId: startedAt }
}

type ModuleParts = {
  readonly identity: ModuleIdentity
  readonly measurements: SourceMeasurements
  /** Returns the chain that signs documents at `nowMs`, Unix milliseconds. */
  readonly chainAt: (nowMs: number) => SigningChain
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * A module after an enclave's boot: PCR0 to 2 are the measurements, PCR4 comes from the instance
 * id, all other registers are zero, and PCR0 to 15 are locked. For errors that AWS's documentation
 * does not name, this module follows QEMU's Nitro device (hw/virtio/virtio-nsm.c).
 */
export function createSecurityModule(parts: ModuleParts): SecurityModule {
  const pcrs = bootRegisters(parts)
  return {
    processRequest: (request) => {
      try {
        if (request.length > NSM_REQUEST_BYTES_MAX) throw new Refusal('InputTooLarge')
        return encodeResponse(answer(decodeRequest(request), pcrs, parts))
      } catch (error) {
        return encodeResponse({
          kind: 'Error',
          code: error instanceof Refusal ? error.code : 'InternalError',
        })
      }
    },
  }
}

/** `code` is the module's own error name. */
class Refusal extends Error {
  override readonly name = 'Refusal'
  readonly code: NsmWireError

  constructor(code: NsmWireError) {
    super(code)
    this.code = code
  }
}

const LOCKED_PCRS = 16
const INSTANCE_ID_PCR = 4
const RANDOM_BYTES = 256
const PCR_ZERO = new Uint8Array(48)

function bootRegisters({ identity, measurements }: ModuleParts): readonly Uint8Array[] {
  const { pcr0, pcr1, pcr2 } = measurements
  const instance = createHash('sha384')
    .update(PCR_ZERO)
    .update(identity.instanceId, 'ascii')
    .digest()
  return Array.from(
    { length: LOCKED_PCRS },
    (_, index) => (index === INSTANCE_ID_PCR ? instance : [pcr0, pcr1, pcr2][index]) ?? PCR_ZERO,
  )
}

function answer(request: NsmRequest, pcrs: readonly Uint8Array[], parts: ModuleParts): NsmResponse {
  if (request.kind === 'GetRandom') return { kind: request.kind, random: randomBytes(RANDOM_BYTES) }
  const { publicKey, userData, nonce } = request
  for (const field of [publicKey, userData, nonce])
    if (field !== null && field.length > ATTESTATION_FIELD_BYTES_MAX)
      throw new Refusal('InputTooLarge')
  // No validator accepts a document with an empty key.
  if (publicKey?.length === 0) throw new Refusal('InvalidArgument')
  const timestampMs = parts.now()
  const moduleId = moduleIdOf(parts.identity)
  const content = { moduleId, timestampMs, pcrs, publicKey, userData, nonce }
  return { kind: request.kind, document: signDocument(content, parts.chainAt(timestampMs)) }
}

type DocumentContent = AttestationInput & {
  readonly moduleId: string
  readonly timestampMs: number
  readonly pcrs: readonly Uint8Array[]
}

/**
 * Untagged COSE_Sign1 (RFC 9052) with ES384. As in AWS's documents since mid-2025, the payload's
 * map has indefinite length. The signature is r || s, 96 bytes; s may be high, as in AWS's
 * signatures.
 */
function signDocument(content: DocumentContent, chain: SigningChain): Uint8Array {
  const payload = encodePayload(content, chain)
  const toBeSigned = encodeArray([
    encodeText('Signature1'),
    encodeBytes(PROTECTED_ES384),
    encodeBytes(new Uint8Array()),
    encodeBytes(payload),
  ])
  const signature = sign('sha384', toBeSigned, { key: chain.privateKey, dsaEncoding: 'ieee-p1363' })
  return encodeArray([
    encodeBytes(PROTECTED_ES384),
    encodeMap([]),
    encodeBytes(payload),
    encodeBytes(signature),
  ])
}

/** {1: -35}: algorithm ES384. */
const PROTECTED_ES384 = Uint8Array.of(0xa1, 0x01, 0x38, 0x22)

function encodePayload(content: DocumentContent, chain: SigningChain): Uint8Array {
  const pcrs = content.pcrs.map(
    (value, index) => [encodeUnsigned(index), encodeBytes(value)] as const,
  )
  return encodeIndefiniteMap([
    [encodeText('module_id'), encodeText(content.moduleId)],
    [encodeText('digest'), encodeText('SHA384')],
    [encodeText('timestamp'), encodeUnsigned(content.timestampMs)],
    [encodeText('pcrs'), encodeMap(pcrs)],
    [encodeText('certificate'), encodeBytes(chain.certificate)],
    [encodeText('cabundle'), encodeArray(chain.cabundle.map(encodeBytes))],
    [encodeText('public_key'), encodeOptionalBytes(content.publicKey)],
    [encodeText('user_data'), encodeOptionalBytes(content.userData)],
    [encodeText('nonce'), encodeOptionalBytes(content.nonce)],
  ])
}

/** A request is a bare name, or a map from one name to its members. Throws Refusal. */
export function decodeRequest(bytes: Uint8Array): NsmRequest {
  let value: unknown
  try {
    value = decoder.decode(bytes)
  } catch {
    throw new Refusal('InvalidOperation')
  }
  const entry = value instanceof Map && value.size === 1 ? [...value][0] : undefined
  const [kind, members]: readonly unknown[] = entry ?? [value]
  if (kind === 'GetRandom') return { kind }
  if (kind !== 'Attestation') throw new Refusal('InvalidOperation')
  if (!(members instanceof Map)) throw new Refusal('InvalidArgument')
  return {
    kind,
    userData: optionalBytes(members.get('user_data')),
    nonce: optionalBytes(members.get('nonce')),
    publicKey: optionalBytes(members.get('public_key')),
  }
}

const decoder = new Decoder({ useRecords: false, mapsAsObjects: false })

function optionalBytes(value: unknown): Uint8Array | null {
  if (value === undefined || value === null) return null
  if (value instanceof Uint8Array) return new Uint8Array(value)
  throw new Refusal('InvalidArgument')
}

export function encodeResponse(response: NsmResponse): Uint8Array {
  switch (response.kind) {
    case 'GetRandom':
      return encodeAnswer(response.kind, 'random', response.random)
    case 'Attestation':
      return encodeAnswer(response.kind, 'document', response.document)
    case 'Error':
      return encodeMap([[encodeText('Error'), encodeText(response.code)]])
  }
}

function encodeAnswer(kind: string, member: string, value: Uint8Array): Uint8Array {
  return encodeMap([[encodeText(kind), encodeMap([[encodeText(member), encodeBytes(value)]])]])
}
