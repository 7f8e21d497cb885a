/**
 * Copies the own members of `value` into an object that inherits no members. In the caller's
 * object, a missing member would be read from Object.prototype. Other code in the same program may
 * have set members there. For example, an `allowDebug` there would turn the option on for all
 * callers.
 */
export function ownMembers<Type extends object>(value: Type): Type {
  return Object.assign(Object.create(null), value)
}

/**
 * True if all members of `value` are its own: an object literal, from any realm, or an object that
 * inherits no members. ownMembers does not see all members of a class instance, or of an object
 * with another prototype.
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
