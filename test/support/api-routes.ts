import type { Route } from '../../src/api/route.ts'
import { readGatewayConfig } from '../../src/config.ts'
import { type Capabilities, listRoutes } from '../../src/routes.ts'

/** Replaces every part of the gateway, because no test here calls one. */
const unasked: never = new Proxy(() => unasked, { get: () => unasked }) as never

const declared: readonly Route[] = listRoutes(
  readGatewayConfig({}),
  new Proxy({} as Capabilities, { get: (_, part) => (part === 'now' ? Date.now : unasked) }),
)

/** Every route of the public port as it is declared; the routes cannot serve calls. */
export const ROUTES = declared.filter(({ scope }) => scope !== 'operator')

/** The same of the control socket. */
export const CONTROL_ROUTES = declared.filter(
  ({ scope }) => scope === 'admin' || scope === 'operator',
)
