import type { Route } from '../../src/api/route.ts'
import { readGatewayConfig } from '../../src/config.ts'
import { type Capabilities, listRoutes } from '../../src/routes.ts'

/** Replaces every part of the gateway, because no test here calls one. */
const unasked: never = new Proxy(() => unasked, { get: () => unasked }) as never

/** Every route of the gateway as it is declared; the routes cannot serve calls. */
export const ROUTES: readonly Route[] = listRoutes(
  readGatewayConfig({}),
  new Proxy({} as Capabilities, { get: (_, part) => (part === 'now' ? Date.now : unasked) }),
)
