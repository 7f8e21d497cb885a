import { z } from 'zod'
import { privateKey } from '../../../runtime/fields.ts'
import { type Environment, readSettings } from '../../../runtime/read-settings.ts'

const schema = z.object({
  /**
   * Key of the account that pays for `contract deploy`, 0x and 64 hex digits. A variable, so that it is in no shell history. Not
   * RELAYER_PRIVATE_KEY: that account's nonces belong to the gateway, and an anchor would be lost to a deployment beside it.
   */
  DEPLOYER_PRIVATE_KEY: privateKey.optional(),
})

/** Gives the deployer's key, 0x and lower case; null for none. Throws ConfigurationError. */
export function readDeployerKey(environment: Environment = process.env): string | null {
  return readSettings(schema, environment).DEPLOYER_PRIVATE_KEY ?? null
}
