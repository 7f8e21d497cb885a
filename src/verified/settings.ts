import type { z } from 'zod'
import {
  type BundleSource,
  isOperatorName,
  isSourceUrl,
  OPERATOR_NAME_FORM,
  SOURCE_URL_LENGTH_MAX,
} from '#attestation/evidence/bundle-source.ts'
import { textField, url } from '../runtime/fields.ts'

export const SOURCE_FIELDS = {
  /**
   * Name of the person or company that runs this service, `Example Ltd`. Evidence has it,
   * as a hint for readers who want to know whom to ask: nothing checks it. Default: none.
   */
  OPERATOR_NAME: textField
    .refine(isOperatorName, { error: `expected a name of ${OPERATOR_NAME_FORM}` })
    .optional(),
  /**
   * URL where the operator publishes the signed list of releases,
   * `https://example.com/releases.json`. Evidence has it, also only as a hint. Default:
   * none.
   */
  RELEASES_URL: url(['http', 'https'])
    .refine(isSourceUrl, {
      error: `expected an ASCII URL of at most ${SOURCE_URL_LENGTH_MAX} characters without user and password`,
    })
    .optional(),
}

type SourceSettings = z.output<z.ZodObject<typeof SOURCE_FIELDS>>

/** Null when the operator set nothing. */
export function sourceOf(
  { OPERATOR_NAME: operator, RELEASES_URL: releases }: SourceSettings,
  gateway: string | null,
): BundleSource | null {
  const source = {
    ...(gateway === null ? {} : { gateway }),
    ...(operator === undefined ? {} : { operator }),
    ...(releases === undefined ? {} : { releases }),
  }
  // The gateway's address alone is not a source, because the sender of a bundle can give the
  // reader this address.
  return operator === undefined && releases === undefined ? null : source
}
