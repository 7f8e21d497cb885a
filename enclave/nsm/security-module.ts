import { createHash, randomBytes } from 'node:crypto'
import { signAttestationDocument } from './attestation-document.ts'
import { type ModuleIdentity, moduleIdOf, type SigningChain } from './certificate-chain.ts'
import { decodeRequest, encodeResponse, type NsmRequest, type NsmResponse } from './messages.ts'
import {
  ATTESTATION_FIELD_BYTES_MAX,
  NSM_REQUEST_BYTES_MAX,
  NSM_WIRE_ERRORS,
  NsmError,
  type NsmWireError,
  PCR_COUNT,
} from './nsm.ts'

/** The virtual module behind the wire: bytes of one request in, bytes of its answer out. */
export type SecurityModule = {
  /** Never throws: what goes wrong is an Error answer, as from the device. */
  processRequest(request: Uint8Array): Uint8Array
}

export type SecurityModuleOptions = {
  readonly identity: ModuleIdentity
  /** PCR0, 1 and 2, 48 bytes each. */
  readonly measurements: readonly [Uint8Array, Uint8Array, Uint8Array]
  /** The chain to sign with at a time, Unix milliseconds. */
  readonly chainAt: (nowMs: number) => SigningChain
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * Gives a module in the state of a booted enclave: PCR0 to 2 as measured, PCR4 from the instance id, the rest zero;
 * 0 to 15 locked. Where AWS's texts are silent it errs as QEMU's Nitro device does (hw/virtio/virtio-nsm.c).
 */
export function createSecurityModule(options: SecurityModuleOptions): SecurityModule {
  const registers = bootRegisters(options)
  return {
    processRequest: (request) => {
      try {
        if (request.length > NSM_REQUEST_BYTES_MAX)
          throw new NsmError('InputTooLarge', `request of ${request.length} bytes`)
        return encodeResponse(answer(decodeRequest(request), registers, options))
      } catch (error) {
        return encodeResponse({ kind: 'Error', code: wireErrorOf(error) })
      }
    },
  }
}

/** SHA384(old || data): how PCRs grow. */
export function extendDigest(old: Uint8Array, data: Uint8Array): Uint8Array {
  return createHash('sha384').update(old).update(data).digest()
}

type Register = { value: Uint8Array; locked: boolean }

const BOOT_LOCKED_PCRS = 16
const INSTANCE_ID_PCR = 4
/** Of every module seen so far. */
const VERSION = { versionMajor: 1, versionMinor: 0, versionPatch: 0 } as const
const RANDOM_BYTES = 256
const PCR_ZERO = new Uint8Array(48)

function bootRegisters({ identity, measurements }: SecurityModuleOptions): readonly Register[] {
  const instance = extendDigest(PCR_ZERO, Buffer.from(identity.instanceId, 'ascii'))
  return Array.from({ length: PCR_COUNT }, (_, index) => ({
    value: (index === INSTANCE_ID_PCR ? instance : measurements[index]) ?? PCR_ZERO,
    locked: index < BOOT_LOCKED_PCRS,
  }))
}

function answer(
  request: NsmRequest,
  registers: readonly Register[],
  options: SecurityModuleOptions,
): NsmResponse {
  switch (request.kind) {
    case 'DescribeNSM':
      return {
        kind: request.kind,
        ...VERSION,
        moduleId: moduleIdOf(options.identity),
        pcrCount: PCR_COUNT,
        lockedPcrs: listLocked(registers).map(([index]) => index),
        digest: 'SHA384',
      }
    case 'GetRandom':
      return { kind: request.kind, random: randomBytes(RANDOM_BYTES) }
    case 'DescribePCR': {
      const { locked, value } = registerAt(registers, request.index)
      return { kind: request.kind, locked, value }
    }
    case 'ExtendPCR': {
      const register = unlockedRegisterAt(registers, request.index)
      register.value = extendDigest(register.value, request.data)
      return { kind: request.kind, value: register.value }
    }
    case 'LockPCR':
      unlockedRegisterAt(registers, request.index).locked = true
      return { kind: request.kind }
    case 'LockPCRs':
      if (request.range > PCR_COUNT) throw new NsmError('InvalidIndex', `range ${request.range}`)
      for (const register of registers.slice(0, request.range)) register.locked = true
      return { kind: request.kind }
    case 'Attestation':
      return { kind: request.kind, document: attest(request, registers, options) }
  }
}

function attest(
  request: NsmRequest & { readonly kind: 'Attestation' },
  registers: readonly Register[],
  { identity, chainAt, now }: SecurityModuleOptions,
): Uint8Array {
  const { publicKey, userData, nonce } = request
  for (const field of [publicKey, userData, nonce])
    if (field !== null && field.length > ATTESTATION_FIELD_BYTES_MAX)
      throw new NsmError('InputTooLarge', `field of ${field.length} bytes`)
  // No validator accepts a document with an empty key, so none is made.
  if (publicKey?.length === 0) throw new NsmError('InvalidArgument', 'empty public key')
  const timestampMs = now()
  const content = {
    moduleId: moduleIdOf(identity),
    timestampMs,
    pcrs: listLocked(registers),
    publicKey,
    userData,
    nonce,
  }
  return signAttestationDocument(content, chainAt(timestampMs))
}

function listLocked(registers: readonly Register[]): readonly (readonly [number, Uint8Array])[] {
  return registers.flatMap(({ locked, value }, index) => (locked ? [[index, value] as const] : []))
}

function registerAt(registers: readonly Register[], index: number): Register {
  const register = registers[index]
  if (register === undefined) throw new NsmError('InvalidIndex', `PCR ${index} of ${registers.length}`)
  return register
}

function unlockedRegisterAt(registers: readonly Register[], index: number): Register {
  const register = registerAt(registers, index)
  if (register.locked) throw new NsmError('ReadOnlyIndex', `PCR ${index} is locked`)
  return register
}

function wireErrorOf(error: unknown): NsmWireError {
  if (!(error instanceof NsmError)) return 'InternalError'
  return NSM_WIRE_ERRORS.find((code) => code === error.code) ?? 'InternalError'
}
