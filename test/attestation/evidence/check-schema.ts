import { readFileSync } from 'node:fs'
import { Ajv2020 } from 'ajv/dist/2020.js'
import type { Json, JsonObject } from '#attestation/json/value.ts'

const url = new URL('../../../attestation/evidence/bundle.schema.json', import.meta.url)

/** The published schema of bundles. */
export const BUNDLE_SCHEMA: JsonObject = JSON.parse(readFileSync(url, 'utf8'))

const ajv = new Ajv2020({ strictTypes: false, strictRequired: false })

/** Whether a value is valid under the schema of bundles, or under another. */
export function isValid(value: Json, schema: JsonObject = BUNDLE_SCHEMA): boolean {
  return ajv.validate(schema, value)
}
