import type { Digests, RunningHash } from './digests.ts'

/** The measurements of an image, 48 bytes each. */
export type EifMeasurements = {
  /** Kernel, command line and all ramdisks. */
  readonly pcr0: Uint8Array
  /** Kernel, command line and the first ramdisk: what boots. */
  readonly pcr1: Uint8Array
  /** The other ramdisks: the application. With only one ramdisk, the hash of nothing. */
  readonly pcr2: Uint8Array
  /** DER of the signing certificate; null for an image that is not signed, whose PCR8 is zero. */
  readonly pcr8: Uint8Array | null
}

/** Takes the measured bytes of an image in the order of the file. */
export type Registers = {
  /** Bytes of the kernel, the command line or the first ramdisk. */
  addBoot(bytes: Uint8Array): void
  /** Bytes of any other ramdisk. */
  addApplication(bytes: Uint8Array): void
  finish(): Omit<EifMeasurements, 'pcr8'>
}

/**
 * Gives empty registers. In nearly every image what boots comes before the application, so that PCR1's hash is
 * PCR0's of that moment: it is copied only then, and boot bytes are hashed once instead of twice.
 */
export function createRegisters(digests: Digests): Registers {
  const image = digests.sha384()
  const application = digests.sha384()
  let boot: RunningHash | null = null
  return {
    addBoot: (bytes) => {
      image.update(bytes)
      boot?.update(bytes)
    },
    addApplication: (bytes) => {
      boot ??= image.copy()
      image.update(bytes)
      application.update(bytes)
    },
    finish: () => ({
      pcr1: extendZero((boot ?? image.copy()).digest(), digests),
      pcr0: extendZero(image.digest(), digests),
      pcr2: extendZero(application.digest(), digests),
    }),
  }
}

/** SHA384(48 zero bytes || digest): a register that was extended once. */
export function extendZero(digest: Uint8Array, digests: Digests): Uint8Array {
  const hash = digests.sha384()
  hash.update(new Uint8Array(48))
  hash.update(digest)
  return new Uint8Array(hash.digest())
}
