/**
 * Copies the own members of `value` into an object that inherits no members. On the caller's
 * object, a missing member would be read from Object.prototype. Other code of the same program may
 * have set it there: an `allowDebug` there would turn the option on for all callers.
 */
export function ownMembers<Type extends object>(value: Type): Type {
  return Object.assign(Object.create(null), value)
}

/**
 * Whether all members of `value` are its own: an object literal, of any realm, or an object that
 * inherits no members. An instance of a class, or an object with another prototype, has members
 * that ownMembers does not see.
 */
export function hasOwnMembersAlone(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return (
    prototype === null ||
    (Object.hasOwn(Object(prototype), 'hasOwnProperty') &&
      Object.getPrototypeOf(prototype) === null)
  )
}
