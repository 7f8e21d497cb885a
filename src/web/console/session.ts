import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { KeyHolderReply } from '../../accounts/key-routes.ts'
import type { Scope } from '../../api/context.ts'
import { askOwnGateway, askText, OwnGatewayFault, type PageCall } from '../kit/gateway.ts'

export type Session = {
  readonly key: string
  readonly holder: KeyHolderReply
  /** Calls the gateway with the key. The session ends if the gateway no longer accepts the key. */
  readonly ask: <Answer>(path: string, call?: Omit<PageCall, 'key'>) => Promise<Answer>
  /** Returns the unchanged text of the answer, for saving. */
  readonly askText: (path: string) => Promise<string>
  /** Removes the key. The form for another key shows `reason`. */
  readonly signOut: (reason?: string) => void
}

const HOLDER_PATH = '/v1/dashboard/me'

/** Throws OwnGatewayFault, with status 401 for an invalid key. */
export function askHolder(key: string, signal?: AbortSignal): Promise<KeyHolderReply> {
  return askOwnGateway<KeyHolderReply>(HOLDER_PATH, {
    key,
    ...(signal === undefined ? {} : { signal }),
  })
}

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

export function may({ holder }: Pick<Session, 'holder'>, scope: Scope): boolean {
  return holder.scopes.includes(scope)
}

export const SessionContext = createContext<Session | null>(null)

/** Returns the session. Throws TypeError if the reader is not signed in. */
export function useSession(): Session {
  const session = useContext(SessionContext)
  if (session === null) throw new TypeError('expected a signed-in key')
  return session
}
