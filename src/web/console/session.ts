import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { KeyHolderReply } from '../../accounts/key-routes.ts'
import type { Scope } from '../../api/context.ts'
import { askOwnGateway, askText, OwnGatewayFault, type PageCall } from '../kit/gateway.ts'

/** The session of this tab. */
export type Session = {
  readonly key: string
  readonly holder: KeyHolderReply
  /** Asks the gateway with the key. A key that the gateway no longer accepts is signed out. */
  readonly ask: <Answer>(path: string, call?: Omit<PageCall, 'key'>) => Promise<Answer>
  /** The same, for an answer that is saved as it comes. */
  readonly askText: (path: string) => Promise<string>
  /** Forgets the key; `reason` is shown beside the form that asks for another key. */
  readonly signOut: (reason?: string) => void
}

/** The path that gives the holder of a key. */
const HOLDER_PATH = '/v1/dashboard/me'

/** Asks for the holder of a key. Throws OwnGatewayFault: status 401 for a key that is not valid. */
export function askHolder(key: string, signal?: AbortSignal): Promise<KeyHolderReply> {
  return askOwnGateway<KeyHolderReply>(HOLDER_PATH, {
    key,
    ...(signal === undefined ? {} : { signal }),
  })
}

/** Opens a session with a key whose holder is known. */
export function openSession(options: Omit<Session, 'ask' | 'askText'>): Session {
  const { key, signOut } = options
  const watch = async <Answer>(answer: Promise<Answer>): Promise<Answer> => {
    try {
      return await answer
    } catch (fault) {
      if (fault instanceof OwnGatewayFault && fault.status === 401)
        signOut('This key is no longer valid: it was revoked, or it expired.')
      throw fault
    }
  }
  return {
    ...options,
    ask: (path, call = {}) => watch(askOwnGateway(path, { ...call, key })),
    askText: (path) => watch(askText(path, { key })),
  }
}

/** Whether a key may do what a scope is for. */
export function may({ holder }: Pick<Session, 'holder'>, scope: Scope): boolean {
  return holder.scopes.includes(scope)
}

export const SessionContext = createContext<Session | null>(null)

/** The session, for parts that only signed-in people see. */
export function useSession(): Session {
  const session = useContext(SessionContext)
  if (session === null) throw new TypeError('expected a signed-in key')
  return session
}
