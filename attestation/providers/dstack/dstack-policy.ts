import { hasOwnMembersAlone, ownMembers } from '../../own-members.ts'
import { demand, isBytesOf, isListOf, optionsOf } from '../policy-options.ts'
import { checkMeasurementSets, type TdxMeasurements } from '../tdx/tdx-policy.ts'

/** An image of the dstack OS. The caller computes the measurements. */
export type DstackImage = {
  /** The image's `sha256sum.txt`. Its SHA-256 is the `os_image_hash`. */
  readonly checksums: Uint8Array
  /** The image's `metadata.json`. */
  readonly metadata: Uint8Array
  /** For each accepted shape of a machine: `mrTd`, `rtmr0`, `rtmr1` and `rtmr2`. */
  readonly measurements: readonly TdxMeasurements[]
}

export type DstackPolicy = {
  /** SHA-256 of the accepted app_compose texts. An empty list is refused. */
  readonly composeHashes: 'any' | readonly Uint8Array[]
  /** Accepted application ids, 20 bytes. An id can be set at deployment. Default: not checked. */
  readonly appIds?: readonly Uint8Array[]
  /** Accepted images. With `'any'`, the OS that ran the application is not checked. */
  readonly images: 'any' | readonly DstackImage[]
  /** True accepts development images, into which the operator can log in. Default false. */
  readonly allowDevImages?: boolean
}

/** A member that is null is not checked. */
export type ResolvedDstackPolicy = Required<Omit<DstackPolicy, 'appIds'>> & {
  readonly appIds: readonly Uint8Array[] | null
}

const OPTIONS: Readonly<Record<keyof DstackPolicy, true>> = {
  composeHashes: true,
  appIds: true,
  images: true,
  allowDevImages: true,
}

/** Sets the defaults, and checks every member. Throws PolicyError. */
export function resolveDstackPolicy(given: DstackPolicy): ResolvedDstackPolicy {
  const policy = optionsOf(given, OPTIONS, 'a dstack policy')
  const { composeHashes, appIds, images, allowDevImages = false } = policy
  demand(
    composeHashes === 'any' || isFilledListOf(composeHashes, (hash) => isBytesOf(hash, 32)),
    "composeHashes: 'any', or one or more hashes of 32 bytes",
  )
  demand(
    appIds === undefined || isFilledListOf(appIds, (id) => isBytesOf(id, 20)),
    'appIds: one or more ids of 20 bytes',
  )
  demand(
    images === 'any' || isFilledListOf(images, isImage),
    "images: 'any', or one or more images of checksums, metadata and measurements",
  )
  if (images !== 'any') for (const { measurements } of images) checkImageSets(measurements)
  demand(typeof allowDevImages === 'boolean', 'allowDevImages to be true or false')
  return { composeHashes, appIds: appIds ?? null, images, allowDevImages }
}

function isFilledListOf(value: unknown, test: (item: unknown) => boolean): boolean {
  return isListOf(value, test) && value.length > 0
}

function isImage(value: unknown): boolean {
  if (!hasOwnMembersAlone(value)) return false
  const { checksums, metadata }: Partial<DstackImage> = ownMembers(value)
  return checksums instanceof Uint8Array && metadata instanceof Uint8Array
}

function checkImageSets(sets: readonly TdxMeasurements[]): void {
  checkMeasurementSets(sets)
  const isWhole = sets.every(({ mrTd, rtmr0, rtmr1, rtmr2 }) => mrTd && rtmr0 && rtmr1 && rtmr2)
  demand(isWhole, 'mrTd, rtmr0, rtmr1 and rtmr2 in the measurements of each image')
}
