import { z } from 'zod'
import { secret, url } from '../runtime/fields.ts'
import { type Environment, readSettings } from '../runtime/read-settings.ts'

/** Where `npm start` listens. */
const GATEWAY_URL_DEFAULT = 'http://127.0.0.1:3000'

const schema = z.object({
  /**
   * Base URL of the gateway from which evidence is fetched. `--url` takes precedence. Default: the
   * address at which `npm start` listens.
   */
  AFFIDAVIT_URL: url(['http', 'https']).default(GATEWAY_URL_DEFAULT),
  /**
   * API key for `verify`, `evidence`, `complete`, `audit` and `node`. It is sent only to the origin
   * of AFFIDAVIT_URL. `--key` takes precedence. Default: no key. A variable keeps the key out of
   * the shell history.
   */
  AFFIDAVIT_API_KEY: secret.optional(),
})

type GatewaySettings = {
  readonly gatewayUrl: string
  /** True if AFFIDAVIT_URL is unset or equal to its default. */
  readonly isDefaultUrl: boolean
  readonly apiKey: string | null
}

/** Throws ConfigurationError with every fault. */
export function readGatewaySettings(environment: Environment = process.env): GatewaySettings {
  const { AFFIDAVIT_URL: gatewayUrl, AFFIDAVIT_API_KEY: apiKey } = readSettings(schema, environment)
  return { gatewayUrl, isDefaultUrl: gatewayUrl === GATEWAY_URL_DEFAULT, apiKey: apiKey ?? null }
}
