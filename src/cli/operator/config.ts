import { resolve } from 'node:path'
import { z } from 'zod'
import { confidential, privateKey, textField, url } from '../../runtime/fields.ts'
import { ConfigurationError, type Environment, readSettings } from '../../runtime/read-settings.ts'
import type { ContentKeySource } from '../../storage/content-keys.ts'
import { CONTENT_KEY_FIELDS, contentFaults, contentKeysOf } from '../../storage/settings.ts'

const schema = z.object({
  /**
   * The gateway's Postgres, for commands such as `keys`. Default: these commands use the gateway at
   * CONTROL_SOCKET. Without it, they use the gateway that runs on DATA_DIR, or the embedded
   * database in it.
   */
  DATABASE_URL: confidential(url(['postgres', 'postgresql'])).optional(),
  /**
   * The gateway's data folder, for use without DATABASE_URL or CONTROL_SOCKET. Default
   * ./.affidavit, as for the gateway.
   */
  DATA_DIR: textField.default('.affidavit'),
  /**
   * The gateway's control socket, as the gateway has it. With
   * GATEWAY_PROCESSES, `enclaves` uses the sockets of all processes (`.0`, `.1` and so on).
   * Default: a file in DATA_DIR names the socket.
   */
  CONTROL_SOCKET: textField.optional(),
  ...CONTENT_KEY_FIELDS,
  /**
   * The gateway's tiers, for `accounts set-tier` without a running gateway. Default: any name is
   * accepted.
   */
  RATE_LIMIT_TIERS_FILE: textField.optional(),
  /**
   * Key of the account that pays for `contract deploy`, 0x and 64 hex digits. A variable keeps the
   * key out of the shell history. It must not be RELAYER_PRIVATE_KEY, because the deployment would
   * use the nonce of an anchor.
   */
  DEPLOYER_PRIVATE_KEY: privateKey.optional(),
  /**
   * Key of the relayer whose remaining balance `relayer withdraw` sends, 0x and 64 hex digits.
   * Gateways must no longer sign with this key.
   */
  RELAYER_PRIVATE_KEY: privateKey.optional(),
})

export type CliConfig = {
  readonly databaseUrl: string | null
  /** Absolute. */
  readonly dataFolder: string
  /** Null: the socket that the data folder names. */
  readonly controlSocket: string | null
  readonly tiersFile: string | null
  /** Null: no keys are configured. */
  readonly contentKeys: ContentKeySource | null
}

/** Throws ConfigurationError with every fault. */
export function readCliConfig(environment: Environment = process.env): CliConfig {
  // The keys for transactions are not read here: a command without transactions does not report
  // their faults.
  const settings = readSettings(
    schema.omit({ DEPLOYER_PRIVATE_KEY: true, RELAYER_PRIVATE_KEY: true }),
    environment,
    contentFaults,
  )
  return {
    databaseUrl: settings.DATABASE_URL ?? null,
    dataFolder: resolve(settings.DATA_DIR),
    controlSocket: settings.CONTROL_SOCKET ?? null,
    tiersFile: settings.RATE_LIMIT_TIERS_FILE ?? null,
    contentKeys: contentKeysOf(settings),
  }
}

/** 0x and lower case, or null. Throws ConfigurationError. */
export function readDeployerKey(environment: Environment = process.env): string | null {
  return (
    readSettings(schema.pick({ DEPLOYER_PRIVATE_KEY: true }), environment).DEPLOYER_PRIVATE_KEY ??
    null
  )
}

/** 0x and lower case. Throws ConfigurationError, also for a missing key. */
export function readRelayerKey(environment: Environment = process.env): string {
  const { RELAYER_PRIVATE_KEY: key } = readSettings(
    schema.pick({ RELAYER_PRIVATE_KEY: true }),
    environment,
  )
  if (key === undefined)
    throw new ConfigurationError(['RELAYER_PRIVATE_KEY: expected the key of the relayer to empty'])
  return key
}
