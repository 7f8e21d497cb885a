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
})

/** Settings of the demo provider's process. */
export type DemoConfig = { readonly host: string; readonly port: number; readonly delayMs: number }

/** Gives the settings of the demo provider. Throws ConfigurationError, which lists every fault. */
export function readDemoConfig(environment: Environment = process.env): DemoConfig {
  const settings = readSettings(schema, environment)
  return { host: settings.DEMO_HOST, port: settings.DEMO_PORT, delayMs: settings.DEMO_DELAY_MS }
}

/** The demo provider's message to the parent that started it with an IPC channel. */
export type DemoReady = {
  readonly kind: 'ready'
  /** Where it listens, e.g. `http://127.0.0.1:40123`. */
  readonly origin: string
}
