/**
 * The Nitro security module as the enclave uses it. Two things speak this: the device of a Nitro enclave
 * (device-nsm.ts) and, in development, the software module (software-nsm.ts). Calls run one at a time, in order.
 */
export type Nsm = {
  readonly kind: 'software' | 'device'
  /**
   * Gives a fresh attestation document (COSE_Sign1 bytes) over the three values; null leaves one out.
   * The document is valid until its leaf certificate expires (at most 3 h).
   */
  attest(input: AttestationInput): Promise<Uint8Array>
  /** Gives `length` bytes (0 to RANDOM_BYTES_MAX) of the module's randomness. */
  random(length: number): Promise<Uint8Array>
  describe(): Promise<NsmDescription>
  describePcr(index: number): Promise<PcrState>
  /** Sets PCR `index` (16..31, unlocked) to SHA384(old || data) and gives the new value, 48 bytes. */
  extendPcr(input: { readonly index: number; readonly data: Uint8Array }): Promise<Uint8Array>
  /** Locks one PCR for the life of the enclave; documents list it from then on. */
  lockPcr(index: number): Promise<void>
  /** Locks PCRs 0 up to, not including, `range`. Already locked ones stay so. */
  lockPcrs(range: number): Promise<void>
  /** Lets go of the device. Later calls fail with code Closed. */
  close(): void
}

export type AttestationInput = {
  /** 1 to ATTESTATION_FIELD_BYTES_MAX bytes. */
  readonly publicKey: Uint8Array | null
  /** 0 to ATTESTATION_FIELD_BYTES_MAX bytes; empty is not the same as null. */
  readonly userData: Uint8Array | null
  readonly nonce: Uint8Array | null
}

export type NsmDescription = {
  readonly versionMajor: number
  readonly versionMinor: number
  readonly versionPatch: number
  /** `i-<instance id>-enc<enclave id>`. */
  readonly moduleId: string
  readonly pcrCount: number
  readonly lockedPcrs: readonly number[]
  /** Hash of the PCR bank; `SHA384` on every Nitro system so far. */
  readonly digest: string
}

export type PcrState = { readonly locked: boolean; readonly value: Uint8Array }

/** Request and response sizes of the driver (linux/drivers/misc/nsm.c). */
export const NSM_REQUEST_BYTES_MAX = 0x1000
export const NSM_RESPONSE_BYTES_MAX = 0x3000

/** Real documents carry up to this in public_key, user_data and nonce each; AWS's texts say 512 and 1024. */
export const ATTESTATION_FIELD_BYTES_MAX = 1024

/** Most that one call of random() gives; each module answer holds 256 bytes. */
export const RANDOM_BYTES_MAX = 65_536

/** Registers of one module. 0..15 are locked at boot. */
export const PCR_COUNT = 32

/** The module's own error names (aws-nitro-enclaves-nsm-api, ErrorCode), as they stand on the wire. */
export const NSM_WIRE_ERRORS = [
  'Success',
  'InvalidArgument',
  'InvalidIndex',
  'InvalidResponse',
  'ReadOnlyIndex',
  'InvalidOperation',
  'BufferTooSmall',
  'InputTooLarge',
  'InternalError',
] as const

export type NsmWireError = (typeof NSM_WIRE_ERRORS)[number]

/** Wire errors, and the faults that arise before a request reaches a module. */
export type NsmErrorCode =
  | NsmWireError
  | 'Closed' //         the Nsm was closed
  | 'Unavailable' //    no device, or no access to it
  | 'InvalidRoot' //    the development root's file cannot be used
  | 'InvalidSource' //  the folders to be measured cannot be read as expected

/** A security module that refused or failed. `code` is stable; the message is for people. */
export class NsmError extends Error {
  override readonly name = 'NsmError'
  readonly code: NsmErrorCode

  constructor(code: NsmErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}
