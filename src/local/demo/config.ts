import { resolve } from 'node:path'
import { z } from 'zod'
import { integer, port, textField } from '../../runtime/fields.ts'
import { type Environment, readSettings } from '../../runtime/read-settings.ts'

const schema = z.object({
  /**
   * Address to listen on. Default 127.0.0.1, because a demonstration must not be reachable from
   * other machines.
   */
  DEMO_HOST: textField.default('127.0.0.1'),
  /**
   * TCP port to listen on. Default 0: a free port is taken and printed, so several demo providers
   * can run at the same time.
   */
  DEMO_PORT: port.default(0),
  /**
   * Pause before each chunk of a stream, and before a complete answer, milliseconds. Default 0,
   * because benchmarks use this provider. Some tens of milliseconds make it look like a working
   * model.
   */
  DEMO_DELAY_MS: integer({ min: 0, max: 60_000 }).default(0),
  /**
   * Folder of recorded answers: with it, the model `demo/replay/FILE` answers with the file FILE of
   * this folder (`*.chunks.txt`: a stream, one event a line; `*.json`: a whole answer). Not in
   * production. Default: no recorded answers.
   */
  DEMO_REPLAY_FOLDER: textField.optional(),
  /**
   * Folder for a simulated TEE: with it, the provider also serves `demo/sealed` and `demo/unsealed`
   * over TLS, with evidence under development roots, and keeps the keys and the policy here.
   * Default: no TEE.
   */
  DEMO_TEE_FOLDER: textField.optional(),
  /** TCP port of the simulated TEE. Default 0: the last port if it is free, else any free port. */
  DEMO_TEE_PORT: port.default(0),
})

export type DemoConfig = {
  readonly host: string
  readonly port: number
  readonly delayMs: number
  /** Absolute path. Null: no recorded answers. */
  readonly replayFolder: string | null
  /** Null: no simulated TEE. */
  readonly tee: { readonly folder: string; readonly port: number } | null
}

/** Throws ConfigurationError, which lists every fault. */
export function readDemoConfig(environment: Environment = process.env): DemoConfig {
  const settings = readSettings(schema, environment, () =>
    environment.NODE_ENV === 'production'
      ? NOT_IN_PRODUCTION.flatMap(([name, fault]) =>
          environment[name] ? [`${name}: ${fault}`] : [],
        )
      : [],
  )
  const {
    DEMO_REPLAY_FOLDER: replayFolder,
    DEMO_TEE_FOLDER: folder,
    DEMO_TEE_PORT: teePort,
  } = settings
  return {
    host: settings.DEMO_HOST,
    port: settings.DEMO_PORT,
    delayMs: settings.DEMO_DELAY_MS,
    replayFolder: replayFolder === undefined ? null : resolve(replayFolder),
    tee: folder === undefined ? null : { folder, port: teePort },
  }
}

const NOT_IN_PRODUCTION = [
  ['DEMO_TEE_FOLDER', 'no simulated TEE in production'],
  ['DEMO_REPLAY_FOLDER', 'no recorded answers in production'],
] as const

export type AttestedDemo = {
  /** https. */
  readonly origin: string
  /** PEM certificate of the CA that issued its TLS certificate. */
  readonly caFile: string
  /** The policy that accepts its evidence. */
  readonly policyFile: string
}

/** The demo provider's message to the parent that started it with an IPC channel. */
export type DemoReady = {
  readonly kind: 'ready'
  /** For example `http://127.0.0.1:40123`. */
  readonly origin: string
  /** Null without a simulated TEE. */
  readonly attested: AttestedDemo | null
}
