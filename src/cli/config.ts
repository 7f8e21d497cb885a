import { z } from 'zod'
import { secret, url } from '../runtime/fields.ts'
import { type Environment, readSettings } from '../runtime/read-settings.ts'

/** Where `npm start` listens. */
const GATEWAY_URL_DEFAULT = 'http://127.0.0.1:3000'

const schema = z.object({
  /**
   * Base URL of the gateway that evidence is fetched from; `--url` goes first. Default: where `npm
   * start` listens.
   */
  AFFIDAVIT_URL: url(['http', 'https']).default(GATEWAY_URL_DEFAULT),
  /**
   * API key for the gateway of AFFIDAVIT_URL, in `verify`, `evidence`, `audit` and `node`: no other
   * origin is sent it. `--key` goes first. Default: none. A variable, so that it is in no shell
   * history.
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
