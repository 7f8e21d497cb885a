import { encodeHex, equalBytes, sha256 } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { memberAt } from '../../json/value.ts'
import { latin1 } from '../../nitro/der.ts'
import { type Established, established, type NotMade, waived } from '../provider-checks.ts'
import type { TdxBody } from '../tdx/quote.ts'
import { differencesFrom, nearestOf } from '../tdx/td-checks.ts'
import { dstackFault } from './dstack-codes.ts'
import type { DstackImage, ResolvedDstackPolicy } from './dstack-policy.ts'

/**
 * Finds the accepted image whose measurements the quote has. `logged`: the image hash that the
 * system logged, or null. This hash alone proves nothing, and must be the hash of the found image.
 * Throws ProviderEvidenceError.
 */
export function matchImage(
  body: TdxBody,
  logged: Uint8Array | null,
  { images }: Pick<ResolvedDstackPolicy, 'images'>,
): Established<DstackImage> | NotMade {
  if (images === 'any') return waived('any image is accepted')
  const image = images.find(({ measurements }) =>
    measurements.some((set) => differencesFrom(body, set).length === 0),
  )
  if (!image) {
    const sets = images.flatMap(({ measurements }) => measurements)
    throw dstackFault('os_image_not_accepted', `expected an image of ${nearestOf(body, sets)}`)
  }
  const hash = sha256(image.checksums)
  if (logged !== null && !equalBytes(logged, hash))
    throw dstackFault('os_image_hash_mismatch', 'expected the logged hash of the measured image')
  return established(image, `os_image_hash ${encodeHex(hash)}`)
}

/**
 * Refuses a development image, into which the operator can log in. The image's checksums must cover
 * the metadata, which states `is_dev`. Throws ProviderEvidenceError.
 */
export function checkImageRelease(
  { checksums, metadata }: DstackImage,
  { allowDevImages }: Pick<ResolvedDstackPolicy, 'allowDevImages'>,
): Established<boolean> {
  const line = `${encodeHex(sha256(metadata))}  metadata.json`
  const isDev = latin1(checksums).split('\n').includes(line) ? isDevOf(metadata) : null
  if (typeof isDev !== 'boolean')
    throw dstackFault('os_image_metadata', "expected metadata of the image's checksums with is_dev")
  if (isDev && !allowDevImages)
    throw dstackFault('os_image_is_dev', 'expected a release image, got a development image')
  return established(isDev, isDev ? 'a development image, which the policy allows' : '')
}

function isDevOf(metadata: Uint8Array): unknown {
  try {
    return memberAt(parseExactJson(metadata), 'is_dev')
  } catch (fault) {
    if (fault instanceof FormatError) return null
    throw fault
  }
}
